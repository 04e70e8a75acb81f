import { randomUUID } from "node:crypto";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  SandboxConfig,
  type CommandEnd,
  type CommandSpec,
  type RunnerSandbox,
  type SandboxClient,
  type StartOptions,
} from "@atoll/runner";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { patience } from "./patience.ts";

export interface OpenedClient extends AsyncDisposable {
  client: SandboxClient;
  /** What sandboxes of this client start from, where the default does not do. */
  config?: Partial<SandboxConfig>;
}

interface Outcome {
  end: CommandEnd;
  stdout: Buffer;
  stderr: Buffer;
}

/** A killed tree is gone after at most this on a machine that has nothing else to do. */
const goneWithinMs = 3_000;

/** What every client of the runner must do. `missing`: why it cannot run on this machine. */
export function clientContract(name: string, open: () => Promise<OpenedClient>, missing?: string): void {
  const because = missing === undefined ? "" : `, which was not tested: ${missing}`;
  describe.skipIf(missing !== undefined)(`a ${name} client${because}`, () => {
    const { signal } = new AbortController();
    const run = randomUUID();
    let opened: OpenedClient;
    let client: SandboxClient;
    let sandbox: RunnerSandbox;
    let directory: string;

    const start = (options: Partial<StartOptions> = {}): Promise<RunnerSandbox> =>
      client.start({
        config: configOf(),
        name: `contract-${randomUUID().slice(0, 8)}`,
        labels: { run },
        network: false,
        signal,
        ...options,
      });
    const configOf = (more: object = {}): SandboxConfig =>
      SandboxConfig.parse({
        client: client.kind,
        limits: { memoryBytes: 512 * 1024 * 1024 },
        ...opened.config,
        ...more,
      });

    async function exec(
      argv: readonly string[],
      options: Partial<CommandSpec> = {},
      where: RunnerSandbox = sandbox,
    ): Promise<Outcome> {
      const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
      const sink = { write: (stream: "stdout" | "stderr", data: Uint8Array) => void output[stream].push(data) };
      const end = await where.exec({ argv, timeoutMs: 120_000, ...options }, sink, signal);
      return { end, stdout: Buffer.concat(output.stdout), stderr: Buffer.concat(output.stderr) };
    }
    const shell = (line: string, options?: Partial<CommandSpec>, where?: RunnerSandbox) =>
      exec(["sh", "-c", line], options, where);
    const textOf = async (line: string, options?: Partial<CommandSpec>, where?: RunnerSandbox) =>
      (await shell(line, options, where)).stdout.toString();
    const exited = (code: number): CommandEnd => ({ kind: "exit", code });

    beforeAll(async () => {
      opened = await open();
      ({ client } = opened);
      directory = await mkdtemp(join(tmpdir(), "atoll-client-"));
      sandbox = await start();
    });
    afterAll(async () => {
      await sandbox?.remove(signal);
      await opened?.[Symbol.asyncDispose]();
      if (directory !== undefined) await rm(directory, { recursive: true, force: true });
    });

    test("passes both streams on, byte for byte, with the exit code", async () => {
      const { end, stdout, stderr } = await shell("printf 'a\\000\\377b'; printf 'err' >&2; exit 7");
      expect({ end, stdout, stderr: stderr.toString() }).toEqual({
        end: exited(7),
        stdout: Buffer.from([0x61, 0, 0xff, 0x62]),
        stderr: "err",
      });
    });

    test("passes arguments without a shell", async () => {
      const { stdout } = await exec(["printf", "%s|", "a b", "$HOME", "", "*", "'\"\n"]);
      expect(stdout.toString()).toBe("a b|$HOME||*|'\"\n|");
    });

    test("runs commands in the work directory, as the user who may write there", async () => {
      expect(await textOf("pwd; id -un; touch made-here && echo yes")).toBe("/testbed\nuser\nyes\n");
    });

    test("runs a command as root where that is asked for", async () => {
      expect(await textOf("id -un", { user: "root" })).toBe("root\n");
    });

    test("gives a command its directory, its variables and those of the sandbox", async () => {
      const own = await start({ config: configOf({ env: { SHARED: "of the sandbox", BOTH: "sandbox" } }) });
      try {
        const options = { cwd: "/", env: { OWN: "a\nb 'c' \"d\" $e", BOTH: "command" } };
        expect(await textOf('pwd; echo "$SHARED|$OWN|$BOTH"; cd ~ && pwd', options, own)).toBe(
          "/\nof the sandbox|a\nb 'c' \"d\" $e|command\n/home/user\n",
        );
      } finally {
        await own.remove(signal);
      }
    });

    test("sends input and its end", async () => {
      const stdin = Buffer.alloc(300_000, "input ");
      const { end, stdout } = await exec(["cat"], { stdin });
      expect(end).toEqual(exited(0));
      expect(stdout.equals(stdin)).toBe(true);
    });

    test("a command without input reads the end of it at once", async () => {
      expect(await textOf("cat; echo done")).toBe("done\n");
    });

    test("reports the death by a signal as that signal", async () => {
      expect((await shell("kill -SEGV $$")).end).toEqual({ kind: "signal", signal: "SIGSEGV" });
    });

    test("a program that does not exist has no exit code", async () => {
      const { end } = await exec(["no-such-program-anywhere"]);
      expect(end).toMatchObject({ kind: "lost", reason: expect.stringContaining("no-such-program-anywhere") });
    });

    test("a directory that does not exist is no exit code of the command", async () => {
      expect((await exec(["true"], { cwd: "/no/such/directory" })).end.kind).toBe("lost");
    });

    const hang = "(setsid sh -c 'sleep 987654 & sleep 987654' & ) ; sleep 987654";
    /** How many processes sleep for this long. */
    const countOf = async (seconds: string): Promise<number> => {
      const look = `tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^sleep ${seconds}'`;
      const line = `n=0; for p in /proc/[0-9]*; do ${look} && n=$((n+1)); done; echo $n`;
      return Number(await textOf(line, { user: "root" }));
    };

    test("a command that hangs is ended at its time limit with everything that it started", async () => {
      const before = performance.now();
      const { end, stdout } = await shell(`echo started; ${hang}`, { timeoutMs: 2_000 });
      const overdueMs = performance.now() - before - 2_000;
      expect(end).toEqual({ kind: "timeout", limitMs: 2_000, reason: "total" });
      expect(stdout.toString()).toBe("started\n");
      expect(await countOf("987654")).toBe(0);
      expect(overdueMs).toBeLessThan(goneWithinMs * 4 * patience);
    });

    test("files survive the end of a command at its time limit", async () => {
      await shell("echo kept > kept; sleep 987654", { timeoutMs: 1_000 });
      expect(await textOf("cat kept")).toBe("kept\n");
    });

    test("a command that goes silent is ended, and one that goes on printing is not", async () => {
      const quiet = await shell("echo a; sleep 0.2; echo b; (setsid sleep 876543 &); sleep 876543", {
        silentTimeoutMs: 1_500,
      });
      expect(quiet.end).toEqual({ kind: "timeout", limitMs: 1_500, reason: "silent" });
      expect(quiet.stdout.toString()).toBe("a\nb\n");
      expect(await countOf("876543")).toBe(0);
      const busy = await shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.4; done", { silentTimeoutMs: 2_000 });
      expect(busy.end).toEqual(exited(0));
    });

    test("an abort rejects with its reason and ends the command", async () => {
      const abort = new AbortController();
      const reason = new Error("enough");
      const sink = { write: () => abort.abort(reason) };
      const work = sandbox.exec(
        { argv: ["sh", "-c", "echo go; sleep 765432"], timeoutMs: 120_000 },
        sink,
        abort.signal,
      );
      await expect(work).rejects.toBe(reason);
      await expect.poll(() => countOf("765432")).toBe(0);
    });

    test("an aborted signal starts nothing", async () => {
      const reason = new Error("before");
      const sink = { write: () => undefined };
      const work = sandbox.exec(
        { argv: ["touch", "/testbed/started"], timeoutMs: 9_000 },
        sink,
        AbortSignal.abort(reason),
      );
      await expect(work).rejects.toBe(reason);
      expect(await textOf("test -e started || echo absent")).toBe("absent\n");
    });

    test("a slow reader gets every byte of a flood", async () => {
      const chunks = { bytes: 0 };
      const sink = {
        write: async (_stream: string, data: Uint8Array) => {
          chunks.bytes += data.length;
          await new Promise((resolve) => {
            setImmediate(resolve);
          });
        },
      };
      const end = await sandbox.exec({ argv: ["sh", "-c", "seq 1 2000000"], timeoutMs: 120_000 }, sink, signal);
      expect({ end, bytes: chunks.bytes }).toEqual({ end: exited(0), bytes: 14_888_896 });
    });

    test("memory beyond the limit is reported as that, and never as the doing of the command", async () => {
      const small = await start({ config: configOf({ limits: { memoryBytes: 128 * 1024 * 1024 } }) });
      try {
        const { end } = await shell("head -c 1000000000 /dev/zero | tail | wc -c; exit 0", {}, small);
        const { end: whole } = await exec(["tail", "/dev/zero"], {}, small);
        expect([end, whole]).toContainEqual({ kind: "oom" });
        // What the monitor of a container notes about it does not end up where the user happens to be.
        expect(await readdir(".")).not.toContain("oom");
      } finally {
        await small.remove(signal);
      }
    });

    test("copies a directory in, for the user", async () => {
      const source = join(directory, "tree");
      await mkdir(join(source, "deep", "empty"), { recursive: true });
      await writeFile(join(source, "deep", "a\nb"), "odd name");
      await writeFile(join(source, "run"), "#!/bin/sh\necho ran\n", { mode: 0o755 });
      await writeFile(join(source, "deep", "n".repeat(200)), "long name");
      await symlink("../run", join(source, "deep", "link"));
      await sandbox.copyIn(source, "/testbed/tree/inside", signal);
      await sandbox.copyIn(source, "/opt/elsewhere/tree", signal);
      const check =
        "stat -c %U . deep run; deep/link; cat deep/a*; cat deep/nnn*; ls -d deep/empty; readlink deep/link";
      const expected = "user\nuser\nuser\nran\nodd namelong namedeep/empty\n../run\n";
      expect(await textOf(check, { cwd: "/testbed/tree/inside" })).toBe(expected);
      expect(await textOf(check, { cwd: "/opt/elsewhere/tree" })).toBe(expected);
    });

    test("copies a directory over another one without removing what is there", async () => {
      const source = join(directory, "over");
      await mkdir(source);
      await writeFile(join(source, "new"), "new");
      await shell("mkdir over; echo old > over/old; echo old > over/new");
      await sandbox.copyIn(source, "/testbed/over", signal);
      expect(await textOf("cat over/old over/new")).toBe("old\nnew");
    });

    test("copies a file in, with its mode, also where only root may write", async () => {
      const source = join(directory, "file.sh");
      await writeFile(source, "#!/bin/sh\necho ran\n", { mode: 0o750 });
      for (const path of ["/testbed/new/dir/file.sh", "/usr/local/file.sh"]) {
        await sandbox.copyIn(source, path, signal);
        expect(await textOf(`stat -c '%U %a' ${path}; ${path}`)).toBe("user 750\nran\n");
      }
    });

    test("copies a file and a directory out", async () => {
      await shell("mkdir -p out/sub; printf 'x\\000y' > out/sub/f; umask 077; echo secret > out/private");
      await sandbox.copyOut("/testbed/out/sub/f", join(directory, "copied", "f"), signal);
      await sandbox.copyOut("/testbed/out", join(directory, "copied-tree"), signal);
      expect(await readFile(join(directory, "copied", "f"))).toEqual(Buffer.from("x\0y"));
      expect((await readdir(join(directory, "copied-tree"), { recursive: true })).toSorted()).toEqual([
        "private",
        "sub",
        "sub/f",
      ]);
    });

    test("nothing that is copied out leads out of its directory", async () => {
      await shell(
        "mkdir evil; cd evil; ln -s /etc absolute; ln -s ../../../etc up; echo fine > fine; ln -s fine inside",
      );
      await sandbox.copyOut("/testbed/evil", join(directory, "evil"), signal);
      expect((await readdir(join(directory, "evil"))).toSorted()).toEqual(["fine", "inside"]);
      expect((await lstat(join(directory, "evil"))).isDirectory()).toBe(true);
    });

    test("what is neither a file nor a directory is not copied out", async () => {
      await shell("mkfifo pipe");
      const copy = sandbox.copyOut("/testbed/pipe", join(directory, "pipe"), signal);
      await expect(copy).rejects.toMatchObject({ code: "file_error" });
    });

    test("a link leads to a file of the sandbox or to none, and never to one of the host", async () => {
      const outside = join(directory, "outside");
      await writeFile(outside, "of the host");
      await exec(["ln", "-s", outside, "leads-out"]);
      await shell("echo within > target; ln -s target leads-in");
      const copyOf = async (name: string): Promise<string> => {
        const copied = join(directory, name);
        await sandbox.copyOut(`/testbed/${name}`, copied, signal).catch(() => undefined);
        return readFile(copied, "utf8").catch(() => "none");
      };
      expect(await copyOf("leads-out")).toBe("none");
      expect(["none", "within\n"]).toContain(await copyOf("leads-in"));
    });

    test("copying out what is not there is not_found", async () => {
      const copy = sandbox.copyOut("/testbed/never-was", join(directory, "never"), signal);
      await expect(copy).rejects.toMatchObject({ code: "not_found" });
    });

    test("has no network unless it is asked for", async () => {
      expect(await textOf("ls /sys/class/net 2>/dev/null || awk -F: 'NR>2{print $1}' /proc/net/dev | tr -d ' '")).toBe(
        "lo\n",
      );
    });

    test("lists sandboxes by all of their labels and removes them, also twice", async () => {
      const mark = randomUUID();
      const other = await start({ labels: { run, mark } });
      const listed = await client.list({ run, mark }, signal);
      expect(listed.map(({ id }) => id)).toEqual([other.id]);
      expect(listed[0]?.labels).toMatchObject({ run, mark });
      expect((await client.list({ run }, signal)).map(({ id }) => id)).toContain(sandbox.id);
      await client.remove(other.id, signal);
      await client.remove(other.id, signal);
      await other.remove(signal);
      expect(await client.list({ mark }, signal)).toEqual([]);
    });

    test("a command in a sandbox that was removed is lost", async () => {
      const other = await start();
      await other.remove(signal);
      expect((await exec(["true"], {}, other)).end.kind).toBe("lost");
    });

    test("a stopped sandbox has no processes and keeps its files", async () => {
      const other = await start();
      try {
        await shell("echo kept > kept; setsid sleep 654321 >/dev/null 2>&1 &", {}, other);
        await other.stop(signal);
        await other.copyOut("/testbed/kept", join(directory, "kept"), signal);
        expect(await readFile(join(directory, "kept"), "utf8")).toBe("kept\n");
      } finally {
        await other.remove(signal);
      }
    });

    test("a snapshot holds the files for another sandbox, and the first one goes on", async () => {
      const { snapshots } = client;
      if (snapshots === undefined) return;
      const save = async (name: string) => sandbox.snapshot?.(name, signal);
      const snapshot = `contract-${run.slice(0, 8)}`;
      expect(await snapshots.has(snapshot, signal)).toBe(false);
      await shell("echo saved > saved; chmod 640 saved; ln -s saved saved-link");
      await shell("echo system > /usr/local/of-root", { user: "root" });
      await save(snapshot);
      await shell("echo later > saved");
      try {
        expect(await snapshots.has(snapshot, signal)).toBe(true);
        const [listed] = (await snapshots.list(signal)).filter(({ name }) => name === snapshot);
        expect(listed?.bytes).toBeGreaterThan(0);
        expect(listed?.createdAtMs).toBeGreaterThan(1_700_000_000_000);
        const mark = randomUUID();
        const copy = await start({ snapshot, labels: { run, mark } });
        expect(
          await textOf("cat saved-link /usr/local/of-root; stat -c '%U %a' saved; touch new && echo ok", {}, copy),
        ).toBe("saved\nsystem\nuser 640\nok\n");
        expect((await client.list({ mark }, signal)).map(({ id }) => id)).toEqual([copy.id]);
        await copy.remove(signal);
      } finally {
        await snapshots.remove(snapshot, signal);
      }
      await snapshots.remove(snapshot, signal);
      expect(await snapshots.has(snapshot, signal)).toBe(false);
      await expect(start({ snapshot })).rejects.toMatchObject({ code: "not_found" });
    });

    test("the digest of a base stays the same", async () => {
      const digest = await client.baseDigest(configOf(), signal);
      expect(digest).toMatch(/^[0-9a-f]{64}$/);
      expect(await client.baseDigest(configOf(), signal)).toBe(digest);
    });
  });
}
