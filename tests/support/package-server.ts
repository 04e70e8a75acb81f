import { execFile } from "node:child_process";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Serves files that git, npm, pip, apt and curl can fetch from a plain web server. The files are put into `directory`.
 */
export async function servePackages(directory: string): Promise<Server> {
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, "hello.txt"), "hello\n");
  await Promise.all([makeRepository(directory), makeNpmPackage(directory), makeWheel(directory)]);
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://host");
    const isIndex = pathname.endsWith("/");
    readFile(join(directory, pathname, isIndex ? "index.html" : "")).then(
      (content) => {
        if (isIndex) response.setHeader("content-type", "text/html");
        response.end(content);
      },
      () => response.writeHead(404).end("not here\n"),
    );
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  return server;
}

async function makeRepository(directory: string): Promise<void> {
  const work = join(directory, "work");
  await mkdir(work);
  await writeFile(join(work, "README"), "read me\n");
  const git = (...args: string[]): Promise<unknown> =>
    run("git", ["-c", "user.name=t", "-c", "user.email=t@test", ...args], { cwd: work, env: { HOME: directory } });
  await git("init", "-q");
  await git("add", "README");
  await git("commit", "-q", "-m", "begin");
  await git("update-server-info");
  await cp(join(work, ".git"), join(directory, "repository.git"), { recursive: true });
  await rm(work, { recursive: true });
}

async function makeNpmPackage(directory: string): Promise<void> {
  const version = { name: "left", version: "1.2.3", dist: { tarball: "http://files.test/left.tgz" } };
  const document = { name: "left", "dist-tags": { latest: "1.2.3" }, versions: { "1.2.3": version } };
  await writeFile(join(directory, "left"), JSON.stringify(document));
}

async function makeWheel(directory: string): Promise<void> {
  const name = "small-1.0-py3-none-any.whl";
  const info = join(directory, "small-1.0.dist-info");
  await mkdir(info);
  await writeFile(join(info, "METADATA"), "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n");
  await writeFile(join(info, "WHEEL"), "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n");
  await writeFile(join(info, "RECORD"), "");
  await run("python3", ["-m", "zipfile", "-c", name, "small-1.0.dist-info"], { cwd: directory });
  await mkdir(join(directory, "simple/small"), { recursive: true });
  await writeFile(join(directory, "simple/small/index.html"), `<!DOCTYPE html><a href="/${name}">${name}</a>\n`);
}
