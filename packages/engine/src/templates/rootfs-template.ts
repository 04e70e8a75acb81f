import { lstat, mkdir, readdir, realpath } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError, type TemplateName } from "@atoll/protocol";
import { extractArchive } from "./archive/extract-archive.ts";
import { publishDirectory } from "./publish-directory.ts";
import { planTopLayer } from "./rootfs-top-layer.ts";
import { writeSkeleton } from "./skeleton.ts";
import { readTemplate, writeManifest } from "./template-manifest.ts";
import type { Template } from "./template.ts";

/** A directory is used in place and must not change for as long as the template exists. An archive is copied. */
export type RootfsSource = { directory: string } | { archive: string };

export interface ImportOptions {
  signal: AbortSignal;
  /** The limit of all files of an archive together. */
  maxBytes?: number;
  maxEntries?: number;
}

const GiB = 1024 ** 3;

/** Makes a template of a root filesystem. Its name exists only when all of it is finished. */
export async function importRootfs(
  templatesDir: string,
  name: TemplateName,
  source: RootfsSource,
  { signal, maxBytes = 32 * GiB, maxEntries = 2_000_000 }: ImportOptions,
): Promise<Template> {
  const directory = join(templatesDir, name);
  if ((await readTemplate(directory, name)) !== undefined) throw taken(name);
  const isPublished = await publishDirectory(
    directory,
    async (unfinished) => {
      const rootfs = "archive" in source ? join(unfinished, "rootfs") : await usableDirectory(source.directory);
      if ("archive" in source) {
        await mkdir(rootfs, { mode: 0o755 });
        await extractArchive(source.archive, rootfs, { signal, maxBytes, maxEntries });
      }
      await assertRootfs(rootfs);
      await mkdir(join(unfinished, "top"));
      await writeSkeleton(join(unfinished, "top"), await planTopLayer(rootfs), signal);
      const lower = ["top", "archive" in source ? "rootfs" : rootfs];
      await writeManifest(unfinished, { version: 1, trees: [{ at: "/", lower }] });
    },
    signal,
  );
  const template = await readTemplate(directory, name);
  if (!isPublished || template === undefined) throw taken(name);
  return template;
}

function taken(name: TemplateName): SandboxError {
  return new SandboxError("already_exists", `Cannot import template ${name}: there is one of this name`, {
    suggestion: "Choose another name, or remove that one first.",
    details: { name },
  });
}

async function usableDirectory(path: string): Promise<string> {
  const refuse = (reason: string, cause?: unknown): SandboxError =>
    new SandboxError("invalid_argument", `Cannot use ${path} as a root filesystem: ${reason}`, { cause });
  if (!isAbsolute(path)) throw refuse("it is not an absolute path");
  const found = await realpath(path).catch((cause: unknown) => {
    throw hasErrno(cause, "ENOENT", "ENOTDIR", "EACCES", "ELOOP") ? refuse("there is no such directory", cause) : cause;
  });
  if (!(await lstat(found)).isDirectory()) throw refuse("it is not a directory");
  // Root in every sandbox could read all secrets of the host.
  if (found === "/") throw refuse("it is the root of this machine; the template host shows what can be shown of it");
  if (/[,:\\"\s]/.test(found)) throw refuse("its path has characters that a mount cannot take");
  return found;
}

async function assertRootfs(rootfs: string): Promise<void> {
  const names = await readdir(rootfs);
  const refuse = (reason: string, suggestion: string): SandboxError =>
    new SandboxError("invalid_argument", `Cannot use this as a root filesystem: ${reason}`, { suggestion });
  if (names.length === 0) throw refuse("it is empty", "Give a directory or an archive with the files in it.");
  const isImage =
    names.includes("oci-layout") ||
    (names.includes("manifest.json") && !names.includes("usr") && !names.includes("bin"));
  if (isImage) {
    throw refuse(
      "it is a container image, with the files in layers",
      "Make an archive of its files: docker create, then docker export.",
    );
  }
}
