import { createHash, randomBytes } from "node:crypto";
import type { Sandbox } from "@atoll/engine";
import { signalNumbers, type DriverName, type SignalName } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { withTimeToStart } from "../../packages/engine/test/support/time-to-start.ts";
import { Conversation, finish, openTestEngine, runIn, type TestEngine } from "./test-engine.ts";

/** Tests what a process in a sandbox must do under every driver. */
export function processContract(driver: DriverName): void {
  describe(`processes under ${driver}`, () => {
    let host: TestEngine;
    let sandbox: Sandbox;

    beforeAll(async () => {
      host = await openTestEngine();
      sandbox = await host.engine.create({ driver });
    });
    afterAll(async () => {
      await host.dispose();
    });

    test("every exit code from 0 to 255 is reported unchanged", async () => {
      const codes: (number | null)[] = [];
      for (let first = 0; first < 256; first += 16) {
        const batch = Array.from({ length: 16 }, (_, index) => first + index);
        const exits = await Promise.all(batch.map((code) => runIn(sandbox, ["sh", "-c", `exit ${code}`])));
        codes.push(...exits.map(({ exitCode }) => exitCode));
      }
      expect(codes).toEqual(Array.from({ length: 256 }, (_, code) => code));
    });

    // These signals stop or continue a process, or are ignored by default, so they do not end it.
    const harmless = ["SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH"];
    const deadly = (Object.keys(signalNumbers) as SignalName[]).filter((name) => !harmless.includes(name));
    test.for(deadly)("a process killed by %s reports that signal", async (name) => {
      const exit = await runIn(sandbox, ["sh", "-c", `ulimit -c 0; kill -${signalNumbers[name]} $$; exit 7`]);
      expect({ exitCode: exit.exitCode, signal: exit.signal }).toEqual({ exitCode: null, signal: name });
    });

    test("a process killed by a real-time signal reports that signal", async () => {
      const numbers = Array.from({ length: 31 }, (_, index) => 34 + index);
      const exits = await Promise.all(
        numbers.map((number) => runIn(sandbox, ["sh", "-c", `kill -${number} $$; exit 7`])),
      );
      const reported = exits.map(({ exitCode, signal }) => exitCode ?? signal);
      expect(reported).toEqual(numbers.map((number) => `SIGRT${number}`));
    });

    test("ls lists links without an error message", async () => {
      const { stdout, stderr } = await runIn(sandbox, "ln -s nowhere link && ls -l link /bin");
      expect({ lines: stdout.toString().split("\n").length, stderr: stderr.toString() }).toEqual({
        lines: 3,
        stderr: "",
      });
    });

    test("the error for a process that cannot be started gives the reason and no exit code", async () => {
      await expect(sandbox.spawn({ argv: ["/no/such/program"] })).rejects.toMatchObject({
        code: "spawn_failed",
        details: { errno: "ENOENT" },
      });
      await expect(sandbox.spawn({ argv: ["/etc/passwd"] })).rejects.toMatchObject({ details: { errno: "EACCES" } });
      await expect(sandbox.spawn({ argv: ["true"], cwd: "/nowhere" })).rejects.toThrow(/nowhere/);
      await expect(sandbox.spawn({ argv: ["true"], user: "unknown-user" })).rejects.toThrow(/unknown-user/);
    });

    test("a process has the given user, directory and environment, and none of the host's variables", async () => {
      const asked = { cwd: "/var/tmp", env: { GREETING: "hello world" } };
      const { output } = await runIn(sandbox, 'id -un; id -u; pwd; echo "$GREETING $HOME $USER"; env | wc -l', asked);
      const [name, uid, directory, words, variables] = output.split("\n");
      expect([name, uid, directory, words]).toEqual(["user", "1000", "/var/tmp", "hello world /home/user user"]);
      expect(Number(variables)).toBeLessThan(14);
      expect((await runIn(sandbox, "id -u; pwd", { user: "root" })).output).toBe("0\n/root\n");
    });

    test("stdout and stderr arrive in the order in which they were written, with offsets", async () => {
      const script = "for i in 1 2 3 4 5; do echo out$i; sleep 0.02; echo err$i >&2; sleep 0.02; done";
      const process = await sandbox.spawn({ argv: ["bash", "-c", script] });
      const next = { at: 0, stdout: 0, stderr: 0 };
      let text = "";
      for await (const event of process) {
        expect({ at: event.at, offset: event.offset }).toEqual({ at: next.at, offset: next[event.stream] });
        next.at += event.data.byteLength;
        next[event.stream] += event.data.byteLength;
        text += event.data.toString();
      }
      expect(text).toBe("out1\nerr1\nout2\nerr2\nout3\nerr3\nout4\nerr4\nout5\nerr5\n");
      expect((await process.wait()).exitCode).toBe(0);
    });

    test("a hundred processes run at once, each with its own output and exit code", async () => {
      const started = await Promise.all(
        Array.from({ length: 100 }, (_, index) =>
          sandbox.spawn({ argv: ["bash", "-c", `read line; echo "${index} $line"; exit ${index}`], stdin: true }),
        ),
      );
      for (const process of started) await process.writeStdin("go\n");
      const ended = await Promise.all(started.map((process) => finish(process)));
      expect(ended.map(({ exitCode, output }) => `${exitCode}: ${output}`)).toEqual(
        Array.from({ length: 100 }, (_, index) => `${index}: ${index} go\n`),
      );
    });

    test("50 MB of stdin arrive completely and in order", async () => {
      const block = randomBytes(1024 * 1024);
      const sent = createHash("sha256");
      const process = await sandbox.spawn({ argv: ["sha256sum"], stdin: true });
      const result = finish(process);
      for (let index = 0; index < 50; index += 1) {
        block.writeUInt32LE(index);
        sent.update(block);
        await process.writeStdin(block);
      }
      await process.closeStdin();
      expect((await result).output).toBe(`${sent.digest("hex")}  -\n`);
    });

    test("a write to a process that no longer reads is refused", async () => {
      const process = await sandbox.spawn({
        argv: ["bash", "-c", "exec 0<&-; read -t 30 x < <(sleep 30)"],
        stdin: true,
      });
      process.discardOutput();
      const flood = async (): Promise<void> => {
        for (;;) await process.writeStdin(Buffer.alloc(64 * 1024));
      };
      await expect(flood()).rejects.toMatchObject({ code: "invalid_state" });
      await process.kill("SIGKILL");
      expect((await process.wait()).signal).toBe("SIGKILL");
    });

    test("binary output is byte-exact", async () => {
      const script =
        "import sys,random; r=random.Random(7); sys.stdout.buffer.write(r.randbytes(3000017)); " +
        "sys.stderr.buffer.write(bytes(range(256))*33)";
      const hash =
        "import sys,random,hashlib; r=random.Random(7); print(hashlib.sha256(r.randbytes(3000017)).hexdigest())";
      const binary = await runIn(sandbox, ["python3", "-c", script]);
      const expected = await runIn(sandbox, ["python3", "-c", hash]);
      expect(binary.stdout.byteLength).toBe(3_000_017);
      expect(createHash("sha256").update(binary.stdout).digest("hex")).toBe(expected.output.trim());
      expect(
        binary.stderr.equals(
          Buffer.concat(Array.from({ length: 33 }, () => Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)))),
        ),
      ).toBe(true);
    });

    test("a terminal has a size, accepts a new one, and Ctrl-C interrupts what runs in it", async () => {
      const process = await sandbox.spawn({
        argv: ["bash", "--norc", "-i"],
        pty: { rows: 31, cols: 97 },
        env: { PS1: "$ " },
      });
      const terminal = new Conversation(process);
      await process.writeStdin("stty size\n");
      await terminal.until(/31 97/);
      await process.resize({ rows: 40, cols: 120 });
      await process.writeStdin("stty size; tty\n");
      expect(await terminal.until(/\/dev\/pts\/\d+/)).toMatch(/40 120/);
      // The program itself prints this, while an echo of the terminal would not: when it arrives, the program runs.
      await process.writeStdin("sh -c 'echo runs$((1+1)); exec sleep 600'\n");
      await terminal.until(/runs2/);
      await process.writeStdin("\u0003");
      await process.writeStdin("echo after=$?; exit 5\n");
      expect(await terminal.toEnd()).toMatch(/after=130/);
      expect((await process.wait()).exitCode).toBe(5);
    });

    test("a program in a terminal receives its new size", async () => {
      const script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done";
      const process = await sandbox.spawn({ argv: ["bash", "-c", script], pty: { rows: 24, cols: 80 } });
      const terminal = new Conversation(process);
      await terminal.until(/ready/);
      await process.resize({ rows: 40, cols: 120 });
      await terminal.until(/40 120/);
      await process.kill("SIGKILL");
    });

    test("a process that writes faster than its reader waits, and memory stays bounded", async () => {
      const process = await sandbox.spawn({
        argv: ["sh", "-c", "yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
      });
      let bytes = 0;
      const iterator = process[Symbol.asyncIterator]();
      const before = globalThis.process.memoryUsage();
      for (let events = 0; events < 50; events += 1) {
        const { value } = await iterator.next();
        bytes += value?.data.byteLength ?? 0;
        await new Promise((resolve) => setImmediate(resolve));
      }
      const after = globalThis.process.memoryUsage();
      expect(bytes).toBeGreaterThan(0);
      expect(after.arrayBuffers - before.arrayBuffers).toBeLessThan(16 * 1024 * 1024);
      await process.kill("SIGKILL");
      process.discardOutput();
      expect((await process.wait()).signal).toBe("SIGKILL");
    });

    test("a process that ignores SIGTERM and forks is killed after its time limit with all its children", async () => {
      const script =
        "trap '' TERM; (trap '' TERM; setsid sh -c \"trap '' TERM; echo up; sleep 777\" &) ; while :; do sleep 1; done";
      const end = await withTimeToStart(
        (timeoutMs) => runIn(sandbox, script, { timeoutMs, graceMs: 100 }),
        ({ output }) => output.includes("up"),
      );
      expect(end).toMatchObject({ signal: "SIGKILL", exitCode: null, timedOut: true });
      const left = await runIn(sandbox, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 77[7]'");
      expect(left.output.trim()).toBe("0");
    });

    test("a signal reaches the whole process group", async () => {
      const process = await sandbox.spawn({ argv: ["bash", "-c", "sleep 555 & sleep 555 & echo ready; wait"] });
      const talk = new Conversation(process);
      await talk.until(/ready/);
      await process.kill("SIGTERM");
      expect((await process.wait()).signal).toBe("SIGTERM");
      await expect
        .poll(async () =>
          (
            await runIn(sandbox, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 55[5]'")
          ).output.trim(),
        )
        .toBe("0");
    });

    test("a background child neither delays the end of its process nor ends with it", async () => {
      const { exitCode, output } = await runIn(sandbox, "sleep 444 & echo started");
      expect({ exitCode, output }).toEqual({ exitCode: 0, output: "started\n" });
      const left = await runIn(sandbox, "pkill -x -f 'sleep 444'; echo $?");
      expect(left.output).toBe("0\n");
    });

    test("an abort kills the process, and the wait rejects with the abort's reason", async () => {
      const abort = new AbortController();
      const process = await sandbox.spawn({ argv: ["sleep", "333"] }, { signal: abort.signal });
      process.discardOutput();
      abort.abort(new Error("changed my mind"));
      await expect(process.wait()).rejects.toThrow("changed my mind");
    });

    test("orphans are reaped: no zombie is left", async () => {
      await runIn(sandbox, "for i in 1 2 3 4 5 6 7 8; do (sh -c 'echo $$ >>/tmp/orphans' &) ; done");
      await expect.poll(async () => (await runIn(sandbox, "wc -l </tmp/orphans")).output.trim()).toBe("8");
      const left = async (): Promise<string> =>
        (await runIn(sandbox, "while read -r pid; do ls -d /proc/$pid; done </tmp/orphans 2>/dev/null")).output;
      await expect.poll(left).toBe("");
    });

    test("arguments and environment beyond what a frame holds are refused with a suggestion", async () => {
      await expect(sandbox.spawn({ argv: ["echo", "x".repeat(300_000)] })).rejects.toMatchObject({
        code: "invalid_argument",
        suggestion: expect.stringContaining("file") as string,
      });
    });
  });
}
