import { Atoll, CommandExitError, isSandboxError, Sandbox, type ConnectionOptions } from "@atoll/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { MockProgram } from "../../src/mock/index.ts";

/** A server that the scenario runs against. */
export interface ScenarioServer {
  connection: ConnectionOptions;
  create: { driver?: "local" | "gvisor" };
  stop(): Promise<void>;
}

/** What the command lines of the scenario do where there is no shell. */
export const programs: Record<string, MockProgram> = {
  "echo out; echo err >&2; exit 3": ({ stdout, stderr }) => {
    stdout("out\n");
    stderr("err\n");
    return 3;
  },
  "printf 0123456789": ({ stdout }) => stdout("0123456789"),
  "echo $GREETING from $PLACE": ({ stdout, env }) => stdout(`${env["GREETING"]} from ${env["PLACE"]}\n`),
  pwd: ({ stdout, cwd }) => stdout(`${cwd}\n`),
  "sleep 60": ({ signal }) =>
    new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve());
    }),
  cat: async ({ stdin, stdout }) => {
    for await (const piece of stdin) stdout(piece);
  },
  "yes 0123456789abcde | head -c 8000000": async ({ stdout }) => {
    for (let piece = 0; piece < 125; piece += 1) stdout("0123456789abcde\n".repeat(4000));
  },
  "exec <&-; sleep 0.2; echo alive": async ({ stdout }) => stdout("alive\n"),
  "printf '\\303\\244\\377'": ({ stdout }) => stdout(new Uint8Array([0xc3, 0xa4, 0xff])),
};

async function collect<Value>(values: AsyncIterable<Value>): Promise<Value[]> {
  const all: Value[] = [];
  for await (const value of values) all.push(value);
  return all;
}

/** Runs the same tests over the mock and over a real server, so that both behave alike. */
export function sdkScenario(name: string, start: () => Promise<ScenarioServer>): void {
  describe(`SDK over ${name}`, () => {
    let server: ScenarioServer;
    let client: Atoll;
    let sandbox: Sandbox;

    beforeAll(async () => {
      server = await start();
      client = new Atoll(server.connection);
      sandbox = await Sandbox.create({
        client,
        ...server.create,
        env: { PLACE: "here" },
        labels: { suite: "scenario" },
      });
    });

    afterAll(async () => {
      await sandbox?.kill();
      client?.close();
      await server?.stop();
    });

    test("a command's output and exit code arrive unchanged", async () => {
      const result = await sandbox.commands.run("echo out; echo err >&2; exit 3");
      expect(result).toMatchObject({ exitCode: 3, signal: null, timedOut: false, stdout: "out\n", stderr: "err\n" });
      expect(result.command.state).toBe("exited");
    });

    test("check makes an exit code an error that has the result", async () => {
      const failing = sandbox.commands.run("echo out; echo err >&2; exit 3", { check: true });
      const error = await failing.catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(CommandExitError);
      expect(error).toMatchObject({ exitCode: 3, stdout: "out\n", stderr: "err\n" });
    });

    test("argv, env and cwd reach the command", async () => {
      expect((await sandbox.commands.run(["printf", "0123456789"])).stdout).toBe("0123456789");
      const greeting = await sandbox.commands.run("echo $GREETING from $PLACE", { envs: { GREETING: "hello" } });
      expect(greeting.stdout).toBe("hello from here\n");
      expect((await sandbox.commands.run("pwd", { cwd: "/tmp" })).stdout).toBe("/tmp\n");
    });

    test("bytes that are not text are marked as such, and text callbacks get whole characters", async () => {
      const texts: string[] = [];
      const result = await sandbox.commands.run("printf '\\303\\244\\377'", {
        onStdout: (text) => void texts.push(text),
      });
      expect(texts.join("")).toBe("ä\uFFFD");
      expect(result.stdout).toBe("ä\uFFFD");
    });

    test("a time limit ends the command, and its result says so", async () => {
      const result = await sandbox.commands.run("sleep 60", { timeoutMs: 100 });
      expect(result).toMatchObject({ timedOut: true, exitCode: null });
    });

    test("a command in the background is followed to its end", async () => {
      const handle = await sandbox.commands.run("echo out; echo err >&2; exit 3", { background: true });
      const events = await collect(handle);
      expect(events.at(-1)).toMatchObject({ type: "ended", command: { exitCode: 3 } });
      expect(events.map((event) => (event.type === "stderr" ? event.text : "")).join("")).toBe("err\n");
      expect((await handle.wait()).stdout).toBe("out\n");
    });

    test("a command is found again by its id and replayed from any byte", async () => {
      const { id } = await sandbox.commands.run("printf 0123456789", { name: "digits", tags: { kind: "test" } });
      const again = await sandbox.commands.connect(id, { from: 4 });
      expect((await again.wait()).stdout).toBe("456789");
      expect(await sandbox.commands.get(id)).toMatchObject({ name: "digits", tags: { kind: "test" }, stdoutBytes: 10 });
      expect((await sandbox.commands.list()).map((command) => command.id)).toContain(id);
    });

    test("two clients on one command both get all of its output", async () => {
      const handle = await sandbox.commands.run("cat", { background: true, stdin: true });
      const other = new Atoll(server.connection);
      const seen = { one: "", other: "" };
      const elsewhere = await Sandbox.connect(sandbox.id, { client: other });
      const second = await elsewhere.commands.connect(handle.id, { onStdout: (text) => void (seen.other += text) });
      const first = await sandbox.commands.connect(handle.id, { onStdout: (text) => void (seen.one += text) });
      const expected: string[] = [];
      for (let round = 0; round < 5; round += 1) {
        // Each client has seen what the other wrote, and writes behind it.
        await first.sendStdin(`${round} from one\n`);
        expected.push(`${round} from one\n`);
        await expect.poll(() => seen.other).toBe(expected.join(""));
        await second.sendStdin(`${round} from the other\n`);
        expected.push(`${round} from the other\n`);
        await expect.poll(() => seen.one).toBe(expected.join(""));
      }
      await first.closeStdin();
      for (const end of [first.wait(), second.wait()]) expect((await end).stdout).toBe(expected.join(""));
      other.close();
    });

    test("input is given at once, as a stream, or by id", async () => {
      expect((await sandbox.commands.run("cat", { stdin: "text" })).stdout).toBe("text");
      const stream = new Blob(["streamed"]).stream();
      expect((await sandbox.commands.run("cat", { stdin: stream })).stdout).toBe("streamed");
      expect((await sandbox.commands.run("cat", { stdin: new Uint8Array(0) })).stdout).toBe("");
      const handle = await sandbox.commands.run("cat", { background: true, stdin: true });
      await sandbox.commands.sendStdin(handle.id, "by id");
      await sandbox.commands.closeStdin(handle.id);
      expect((await handle.wait()).stdout).toBe("by id");
    });

    test("more input than fits into the buffers arrives whole", async () => {
      const input = new Uint8Array(3_000_000).map((_, index) => 97 + (index % 23));
      const result = await sandbox.commands.run("cat", { stdin: input });
      expect(result.exitCode).toBe(0);
      expect(result.stdout === new TextDecoder().decode(input)).toBe(true);
    });

    test("more output than fits into the buffers arrives whole, also at a slow reader", async () => {
      const handle = await sandbox.commands.run("yes 0123456789abcde | head -c 8000000", { background: true });
      let bytes = 0;
      let isRight = true;
      for await (const event of handle) {
        if (event.type !== "stdout") continue;
        isRight &&=
          event.at === bytes &&
          event.text.startsWith("0123456789abcde\n".slice(bytes % 16).slice(0, event.text.length));
        bytes += event.data.length;
        await new Promise((resolve) => {
          setTimeout(resolve, 0);
        });
      }
      expect({ bytes, isRight }).toEqual({ bytes: 8_000_000, isRight: true });
    });

    test("of more output than fits into the log, beginning and end are kept and the gap is reported", async () => {
      const handle = await sandbox.commands.run("yes 0123456789abcde | head -c 8000000", {
        background: true,
        logBytes: 1_000_000,
      });
      await expect.poll(async () => (await sandbox.commands.get(handle.id)).state).toBe("exited");
      const { droppedBytes } = await sandbox.commands.get(handle.id);
      expect(droppedBytes).toBeGreaterThan(7_000_000 - 1);
      const again = await sandbox.commands.connect(handle.id);
      const kept = { before: 0, dropped: 0, after: 0 };
      for await (const event of again) {
        if (event.type === "dropped") kept.dropped += event.bytes;
        else if (event.type === "stdout") kept[kept.dropped === 0 ? "before" : "after"] += event.data.length;
      }
      expect(kept.dropped).toBe(droppedBytes);
      expect(kept.before).toBe(250_000);
      expect(kept.before + kept.dropped + kept.after).toBe(8_000_000);
    });

    test("a command that leaves its input unread still gives its output", async () => {
      const result = await sandbox.commands.run("exec <&-; sleep 0.2; echo alive", { stdin: new Uint8Array(500_000) });
      expect(result.stdout).toBe("alive\n");
    });

    test("kill ends a command with its signal", async () => {
      const handle = await sandbox.commands.run("sleep 60", { background: true });
      await handle.kill();
      expect(await handle.wait()).toMatchObject({ signal: "SIGKILL", exitCode: null });
    });

    test("an abort in the foreground throws the reason and ends the command", async () => {
      const reason = new Error("no more");
      const stop = new AbortController();
      const run = sandbox.commands.run("sleep 60", { name: "aborted", signal: stop.signal });
      const named = async () => (await sandbox.commands.list()).find(({ name }) => name === "aborted");
      await expect.poll(async () => (await named())?.state).toBe("running");
      stop.abort(reason);
      await expect(run).rejects.toBe(reason);
      await expect.poll(async () => (await named())?.state).toBe("exited");
    });

    test("an abort of waiting leaves the command alone", async () => {
      const handle = await sandbox.commands.run("sleep 60", { background: true });
      await expect(handle.wait({ signal: AbortSignal.abort(new Error("enough")) })).rejects.toThrow("enough");
      expect((await sandbox.commands.get(handle.id)).state).toBe("running");
      await sandbox.commands.kill(handle.id);
    });

    test("files are written, read, listed, moved and removed", async () => {
      const { files } = sandbox;
      expect(await files.write("dir/a.txt", "hello")).toMatchObject({ name: "dir/a.txt", type: "file", sizeBytes: 5 });
      await files.write("dir/a.txt", new TextEncoder().encode(" there"), { how: "append" });
      expect(await files.read("dir/a.txt")).toBe("hello there");
      expect(await files.read("dir/a.txt", { as: "bytes", offset: 6, length: 2 })).toEqual(new Uint8Array([116, 104]));
      const stream = await files.read("dir/a.txt", { as: "stream" });
      expect(await new Response(stream).text()).toBe("hello there");
      await files.write("dir/stream.bin", new Blob(["by stream"]).stream());
      expect((await files.list("dir")).map((file) => file.name)).toEqual(["a.txt", "stream.bin"]);
      await files.rename("dir/a.txt", "dir/b.txt");
      expect(await files.exists("dir/a.txt")).toBe(false);
      expect(await files.exists("dir/b.txt")).toBe(true);
      expect(await files.mkdir("dir/deep/er")).toMatchObject({ type: "directory" });
      await files.remove("dir", { recursive: true });
      expect(await files.exists("dir")).toBe(false);
      await expect(files.read("dir/b.txt")).rejects.toMatchObject({ code: "not_found" });
      await expect(
        files.write("dir", "x", { how: "create" }).then(() => files.write("dir", "y", { how: "create" })),
      ).rejects.toMatchObject({ code: "already_exists" });
    });

    test("a directory goes out and in as an archive, with long names and empty directories", async () => {
      const { files } = sandbox;
      const long = `tree/${"l".repeat(120)}/ü.txt`;
      await files.write(long, "deep");
      await files.write("tree/plain.txt", "plain", { mode: "600" });
      await files.mkdir("tree/empty");
      const archive = await new Response(await files.download("tree")).arrayBuffer();
      expect(archive.byteLength % 512).toBe(0);
      expect(await files.upload(archive, "copy/of/tree")).toEqual({ files: 2, bytes: 9 });
      expect(await files.read(long.replace("tree", "copy/of/tree"))).toBe("deep");
      expect(await files.stat("copy/of/tree/plain.txt")).toMatchObject({ mode: 0o600, sizeBytes: 5 });
      expect(await files.list("copy/of/tree/empty")).toEqual([]);
      await expect(files.download("tree/nothing-here")).rejects.toMatchObject({ code: "not_found" });
      await expect(files.upload("no archive".repeat(100), "broken")).rejects.toMatchObject({
        code: "invalid_argument",
      });
    });

    test("a signed URL reads or writes one file without a key, and nothing else", async () => {
      const { files } = sandbox;
      const fetchWithoutKey = server.connection.fetch ?? globalThis.fetch;
      await files.write("report.txt", "for you");
      const reading = await files.signUrl("report.txt", { expiresInMs: 60_000 });
      expect(reading.expiresAtMs).toBeGreaterThan(Date.now());
      const answer = await fetchWithoutKey(reading.url);
      expect(answer.headers.get("content-disposition")).toBe("attachment");
      expect(await answer.text()).toBe("for you");
      expect((await fetchWithoutKey(reading.url, { method: "PUT", body: "no" })).status).toBe(403);
      const writing = await files.signUrl("report.txt", { method: "PUT" });
      expect((await fetchWithoutKey(writing.url, { method: "PUT", body: "from you" })).status).toBe(204);
      expect(await files.read("report.txt")).toBe("from you");
      expect((await fetchWithoutKey(writing.url)).status).toBe(403);
      const forged = reading.url.replace(/\/signed\/.{5}/, "/signed/aaaaa");
      expect((await fetchWithoutKey(forged)).status).toBe(403);
    });

    test("a template is made from an archive, found by its name, kept while it is used, and removed", async () => {
      await sandbox.files.write("root/etc/motd", "hello");
      await sandbox.files.mkdir("root/usr/bin");
      const archive = await new Response(await sandbox.files.download("root")).arrayBuffer();
      expect(await client.templates.import("tiny", archive)).toEqual({
        name: "tiny",
        kind: "rootfs",
        isBuiltIn: false,
      });
      await expect(client.templates.import("tiny", archive)).rejects.toMatchObject({ code: "already_exists" });
      expect((await client.templates.list()).map(({ name }) => name)).toEqual(expect.arrayContaining(["host", "tiny"]));
      await expect(client.templates.remove("host")).rejects.toMatchObject({ code: "invalid_argument" });
      const user = await Sandbox.create({ client, ...server.create, template: "tiny" });
      await expect(client.templates.remove("tiny")).rejects.toMatchObject({ code: "in_use" });
      await user.kill();
      await client.templates.remove("tiny");
      await expect(Sandbox.create({ client, ...server.create, template: "tiny" })).rejects.toMatchObject({
        code: "not_found",
      });
      await expect(client.templates.import("bad", "no archive".repeat(100))).rejects.toMatchObject({
        code: "invalid_argument",
      });
    });

    test("a watch reports every change after its first message", async () => {
      await sandbox.files.mkdir("seen");
      const seen: string[] = [];
      for await (const change of sandbox.files.watch("seen", { signal: AbortSignal.timeout(120_000) })) {
        if (change.kind === "watching") await sandbox.files.write("seen/new.txt", "1");
        seen.push(change.path);
        if (change.path === "new.txt") break;
      }
      expect(seen.at(-1)).toBe("new.txt");
    });

    test("info, timeouts, labels and egress can be read and changed", async () => {
      expect(await sandbox.getInfo()).toMatchObject({
        id: sandbox.id,
        state: "running",
        labels: { suite: "scenario" },
      });
      expect((await sandbox.setTimeout(120_000)).timeouts.idleMs).toBe(120_000);
      expect((await sandbox.setTimeout({ lifetimeMs: 3_600_000 })).timeouts).toMatchObject({
        idleMs: 120_000,
        lifetimeMs: 3_600_000,
      });
      expect((await sandbox.update({ labels: { suite: "changed" } })).labels).toEqual({ suite: "changed" });
      await sandbox.setEgress({ allow: ["example.com:443"] });
      expect((await sandbox.getEgress()).allow).toEqual(["example.com:443"]);
      expect((await sandbox.getMetrics()).processes).toBeGreaterThan(0);
      const listed = await collect(Sandbox.list({ client, labels: { suite: "changed" }, pageSize: 1 }));
      expect(listed.map(({ id }) => id)).toEqual([sandbox.id]);
    });

    test("info says whether a sandbox is persistent and which server has it", async () => {
      const { persistent, server: place, takenOver } = await sandbox.getInfo();
      expect({ persistent, takenOver }).toEqual({ persistent: false, takenOver: undefined });
      expect(place).toEqual({ id: expect.any(String), url: expect.stringMatching(/^http/) });
      const unable = Sandbox.create({ client, driver: "local", persistent: true });
      await expect(unable).rejects.toMatchObject({ code: "unsupported" });
    });

    test("only the holder can use a held sandbox", async () => {
      const holder = new Atoll({ ...server.connection, holder: "one" });
      const mine = await Sandbox.connect(sandbox.id, { client: holder });
      expect((await mine.hold({ ttlMs: 30_000 })).heldBy).toBe("one");
      const other = new Atoll({ ...server.connection, holder: "two" });
      const theirs = await Sandbox.connect(sandbox.id, { client: other });
      await expect(theirs.hold()).rejects.toMatchObject({ code: "in_use" });
      expect((await mine.unhold()).heldBy).toBeUndefined();
    });

    test("events come in order from a cursor", async () => {
      const { id } = await sandbox.commands.run("printf 0123456789");
      const types: string[] = [];
      for await (const event of client.events({
        cursor: 0,
        sandboxId: sandbox.id,
        signal: AbortSignal.timeout(120_000),
      })) {
        types.push(event.type);
        if (event.type === "command.ended" && event.commandId === id) break;
      }
      expect(types[0]).toBe("sandbox.state");
      expect(types.slice(-2)).toEqual(["command.started", "command.ended"]);
    });

    test("a sandbox's own token works for that sandbox", async () => {
      const { token } = await Sandbox.create({ client, ...server.create }).then(async (short) => {
        await short.kill();
        return short;
      });
      expect(token).toBeTypeOf("string");
      const { apiKey: _, ...keyless } = server.connection;
      const guest = new Atoll({ ...keyless, sandboxToken: sandbox.token });
      const same = await Sandbox.connect(sandbox.id, { client: guest });
      expect((await same.commands.run("cat", { stdin: "by token" })).stdout).toBe("by token");
      const wrong = new Atoll({ ...keyless, sandboxToken: token });
      await expect(Sandbox.connect(sandbox.id, { client: wrong })).rejects.toMatchObject({ code: "permission_denied" });
      guest.close();
    });

    test("keys are made, listed and revoked", async () => {
      const { key, secret } = await client.keys.create({ name: "scenario" });
      expect((await client.keys.list()).map(({ id }) => id)).toContain(key.id);
      const other = new Atoll({ ...server.connection, apiKey: secret });
      expect(await collect(other.sandboxes())).toBeInstanceOf(Array);
      await client.keys.revoke(key.id);
      await expect(collect(other.sandboxes())).rejects.toMatchObject({ code: "permission_denied" });
    });

    test("what the server refuses is an error with its code", async () => {
      const missing = "a".repeat(20);
      const error = await Sandbox.connect(missing, { client }).catch((thrown: unknown) => thrown);
      expect(isSandboxError(error, "not_found")).toBe(true);
      await expect(sandbox.commands.run("")).rejects.toMatchObject({ code: "invalid_argument" });
      await expect(sandbox.commands.connect(`cmd${missing}`)).rejects.toMatchObject({ code: "not_found" });
      await expect(Sandbox.kill(missing, { client })).rejects.toMatchObject({ code: "not_found" });
    });
  });
}
