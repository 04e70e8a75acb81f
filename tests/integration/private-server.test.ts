import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { pollUntil } from "@atoll/host";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

const program = fileURLToPath(new URL("../support/programs/private-server-client.ts", import.meta.url));

/** Another program of the same user. */
class Client implements AsyncDisposable {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(directory: string) {
    this.child = spawn(process.execPath, ["--conditions=source", "--import", "tsx", program, directory], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const { stdout } = this.child;
    if (stdout === null) throw new Error("The client has no output");
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  /** The next line that it prints. */
  async read(): Promise<Record<string, unknown>> {
    const { done, value } = await this.#lines.next();
    if (done === true) throw new Error("The client has ended");
    return JSON.parse(value) as Record<string, unknown>;
  }

  async ask(word: string): Promise<Record<string, unknown>> {
    this.child.stdin?.write(`${word}\n`);
    return this.read();
  }

  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, "exit");
    this.child.kill(signal);
    await gone;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}

/** Every process whose command line names the directory, but those of this test. */
async function processesOf(directory: string): Promise<{ pid: number; command: string }[]> {
  const found: { pid: number; command: string }[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const command = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    if (command.includes(directory) && !command.includes("private-server-client")) {
      found.push({ pid: Number(name), command: command.replaceAll("\0", " ") });
    }
  }
  return found;
}

async function pidOf(directory: string, part: string): Promise<number> {
  const [found] = (await processesOf(directory)).filter(({ command }) => command.includes(part));
  if (found === undefined) throw new Error(`No process has ${part} in its command line`);
  return found.pid;
}

describe("the private server", () => {
  let root: string;
  let directory: string;

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "atoll-private-"));
    // Longer than an address of a socket can be.
    directory = join(root, "d".repeat(150));
  });
  afterEach(async () => {
    await pollUntil(async () => (await processesOf(directory)).length === 0, { deadlineMs: 60_000 });
    await rm(root, { recursive: true, force: true });
  });

  test("is shared by programs that start at the same time, and ends with the last", async () => {
    await using one = new Client(directory);
    await using two = new Client(directory);
    await using three = new Client(directory);
    const opened = await Promise.all([one.read(), two.read(), three.read()]);
    expect(new Set(opened.map(({ url }) => url)).size).toBe(1);
    expect(await one.ask("run")).toEqual({ stdout: "42\n" });
    await one.end("SIGTERM");
    await two.end("SIGKILL");
    expect(await three.ask("run")).toEqual({ stdout: "42\n" });
    await three.end("SIGKILL");
    await expect.poll(() => processesOf(directory)).toEqual([]);
  });

  test("keeps its key and its snapshots for the next program, and no sandbox", async () => {
    await using first = new Client(directory);
    const { url, isNew } = await first.read();
    expect(isNew).toBe(true);
    expect(await first.ask("snapshot")).toEqual({ done: true });
    await first.end();
    await using second = new Client(directory);
    const again = await second.read();
    expect(again["url"]).not.toBe("");
    expect(typeof url).toBe("string");
    expect(await second.ask("list")).toEqual({ snapshots: ["kept"], sandboxes: 0 });
  });

  test("ends when its keeper is killed, and a stale socket stops no other one", async () => {
    await using first = new Client(directory);
    await first.read();
    process.kill(await pidOf(directory, "keep-server"), "SIGKILL");
    await expect.poll(() => processesOf(directory)).toEqual([]);
    expect(await readdir(directory)).toContain("keeper.sock");
    await using second = new Client(directory);
    expect((await second.read())["isNew"]).toBe(true);
    expect(await second.ask("run")).toEqual({ stdout: "42\n" });
  });

  test("that is killed is started again for its clients", async () => {
    await using client = new Client(directory);
    const { url } = await client.read();
    expect(await client.ask("run")).toEqual({ stdout: "42\n" });
    process.kill(await pidOf(directory, "--data-dir"), "SIGKILL");
    expect(await client.ask("run")).toEqual({ stdout: "42\n" });
    await using other = new Client(directory);
    expect(await other.read()).toMatchObject({ url, isNew: false });
  });

  test("makes another key when its own was lost", async () => {
    await using first = new Client(directory);
    const { key } = await first.read();
    await first.end();
    await expect.poll(() => processesOf(directory)).toEqual([]);
    await rm(join(directory, "key"));
    await using second = new Client(directory);
    expect((await second.read())["key"]).not.toBe(key);
    expect(await second.ask("run")).toEqual({ stdout: "42\n" });
  });

  test("is closed to other users", async () => {
    await using client = new Client(directory);
    await client.read();
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
    expect((await stat(join(directory, "key"))).mode & 0o777).toBe(0o600);
  });
});
