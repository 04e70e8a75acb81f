// @module-tag gvisor
import { createHash } from "node:crypto";
import { isSandboxError } from "@atoll/protocol";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Conversation, finish, openTestEngine, runIn, stateReached, type TestEngine } from "../support/test-engine.ts";

let host: TestEngine;
let atStep: (step: string) => void = () => undefined;
beforeAll(async () => {
  host = await openTestEngine({ atStep: (step) => atStep(step) });
});
afterEach(() => {
  atStep = () => undefined;
});
afterAll(() => host.dispose());

test("no byte of output is lost or doubled by pauses", async () => {
  const sandbox = await host.engine.create({});
  const lines = 120_000;
  const writing = await sandbox.spawn({ argv: ["bash", "-c", `seq -f 'line %09.0f' 1 ${lines}; exit 37`] });
  const hash = createHash("sha256");
  let bytes = 0;
  let pauses = 0;
  for await (const { data, at } of writing) {
    expect(at).toBe(bytes);
    hash.update(data);
    bytes += data.byteLength;
    if (bytes < (pauses + 1) * 400_000 || pauses === 3) continue;
    pauses += 1;
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id);
  }
  const expected = createHash("sha256");
  for (let line = 1; line <= lines; line += 1) expected.update(`line ${String(line).padStart(9, "0")}\n`);
  expect(pauses).toBe(3);
  expect(hash.digest("hex")).toBe(expected.digest("hex"));
  expect((await writing.wait()).exitCode).toBe(37);
  await sandbox.kill();
});

test("a terminal goes on after a resume, and its size can be changed", async () => {
  const sandbox = await host.engine.create({});
  const shell = await sandbox.spawn({ argv: ["bash", "--norc", "-i"], pty: { rows: 24, cols: 80 } });
  const talk = new Conversation(shell);
  await shell.writeStdin("here=remembered; tty\n");
  await talk.until(/\/dev\/pts\/\d+\r\n/);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await shell.resize({ rows: 50, cols: 132 });
  await shell.writeStdin("echo $here; stty size\n");
  expect(await talk.until(/50 132\r\n/)).toContain("remembered\r\n");
  await shell.writeStdin("exit 5\n");
  shell.discardOutput();
  expect((await shell.wait()).exitCode).toBe(5);
  await sandbox.kill();
});

test("input written during a pause arrives after the resume", async () => {
  const sandbox = await host.engine.create({});
  const echo = await sandbox.spawn({ argv: ["cat"], stdin: true });
  await echo.writeStdin("before ");
  await host.engine.pause(sandbox.id);
  await echo.writeStdin("during ");
  await echo.closeStdin();
  await host.engine.resume(sandbox.id);
  expect((await finish(echo)).output).toBe("before during ");
  await sandbox.kill();
});

test("a process that is killed during a pause is gone after the resume", async () => {
  const sandbox = await host.engine.create({});
  const sleeping = await sandbox.spawn({ argv: ["sleep", "1000"] });
  await host.engine.pause(sandbox.id);
  await sleeping.kill("SIGKILL");
  await host.engine.resume(sandbox.id);
  sleeping.discardOutput();
  expect((await sleeping.wait()).signal).toBe("SIGKILL");
  await sandbox.kill();
});

test.for([0, 5, 20, 40])(
  "a process that ends about %d ms after the start of a pause reports its exit code",
  async (delayMs) => {
    const sandbox = await host.engine.create({});
    const ending = await sandbox.spawn({
      argv: ["bash", "-c", `read go; sleep ${delayMs / 1000}; echo last; exit 9`],
      stdin: true,
    });
    await ending.writeStdin("go\n");
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id);
    expect(await finish(ending)).toMatchObject({ exitCode: 9, output: "last\n" });
    await sandbox.kill();
  },
);

test("a connection between two processes, and one from the host, go on", async () => {
  const sandbox = await host.engine.create({});
  const script = `
import socket, sys
server = socket.create_server(("127.0.0.1", 4000))
client = socket.create_connection(("127.0.0.1", 4000))
inner, _ = server.accept()
print("ready", flush=True)
outer, _ = server.accept()
for line in sys.stdin:
    client.sendall(line.encode())
    outer.sendall(inner.recv(100))
    print("sent", flush=True)
`;
  const serving = await sandbox.spawn({ argv: ["python3", "-c", script], stdin: true });
  const talk = new Conversation(serving);
  await talk.until(/ready\n/);
  const connection = await sandbox.dial(4000, { signal: AbortSignal.timeout(120_000) });
  const received: Buffer[] = [];
  const reading = (async () => {
    for await (const chunk of connection) received.push(chunk as Buffer);
  })();
  await serving.writeStdin("one\n");
  await talk.until(/sent\n/);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await serving.writeStdin("two\n");
  await talk.until(/sent\n/);
  await serving.closeStdin();
  await reading;
  expect(Buffer.concat(received).toString()).toBe("one\ntwo\n");
  await sandbox.kill();
});

test("named sockets, named pipes and mapped files go on", async () => {
  const sandbox = await host.engine.create({});
  const script = `
import mmap, os, socket, sys, threading
server = socket.socket(socket.AF_UNIX); server.bind("/home/user/socket"); server.listen()
os.mkfifo("/home/user/pipe")
pipe = os.open("/home/user/pipe", os.O_RDWR)
with open("/home/user/mapped", "wb") as f: f.write(b"0" * 4096)
f = open("/home/user/mapped", "r+b"); mapped = mmap.mmap(f.fileno(), 4096)
mapped[0:6] = b"before"
print("ready", flush=True)
sys.stdin.readline()
client = socket.socket(socket.AF_UNIX); client.connect("/home/user/socket")
inner, _ = server.accept()
client.sendall(b"through socket"); print(inner.recv(100).decode(), flush=True)
os.write(pipe, b"through pipe"); print(os.read(pipe, 100).decode(), flush=True)
mapped[6:11] = b"after"; mapped.flush()
print(open("/home/user/mapped", "rb").read(11).decode(), flush=True)
`;
  const running = await sandbox.spawn({ argv: ["python3", "-c", script], stdin: true });
  const talk = new Conversation(running);
  await talk.until(/ready\n/);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await running.writeStdin("go\n");
  expect(await talk.toEnd()).toBe("through socket\nthrough pipe\nbeforeafter\n");
  await sandbox.kill();
});

test("the clock in the sandbox matches the host's after a resume", async () => {
  const steps = new Map<string, number>();
  atStep = (step) => void steps.set(step, Date.now());
  const sandbox = await host.engine.create({});
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  // Nothing in the sandbox ran for at least this time. A clock that had stopped would be behind by as much.
  const stoodStillMs = (steps.get("resume: verified") ?? 0) - (steps.get("pause: frozen") ?? 0);
  const before = Date.now();
  const inside = Number((await runIn(sandbox, "date +%s%3N")).output);
  expect(inside).toBeGreaterThan(before - stoodStillMs / 2);
  expect(inside).toBeLessThan(Date.now() + stoodStillMs / 2);
  await sandbox.kill();
});

test("a resume without memory starts again from the saved files, without the processes", async () => {
  const sandbox = await host.engine.create({});
  await sandbox.files.write("/home/user/note", "kept");
  const sleeping = await sandbox.spawn({ argv: ["sleep", "1000"] });
  const waiting = sleeping.wait().catch((reason: unknown) => reason);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id, { memory: false });
  expect(isSandboxError(await waiting)).toBe(true);
  expect((await runIn(sandbox, "cat note; pgrep sleep || echo none")).output).toBe("keptnone\n");
  await sandbox.kill();
});

test("a sandbox can be killed during a pause, while it is paused and during a resume", async () => {
  const { engine } = host;
  const whilePausing = await engine.create({});
  const isPausing = stateReached(engine, whilePausing.id, "pausing");
  const pausing = engine.pause(whilePausing.id).catch((reason: unknown) => reason);
  await isPausing;
  await whilePausing.kill();
  expect(isSandboxError(await pausing, "sandbox_ended")).toBe(true);

  const whilePaused = await engine.create({});
  await engine.pause(whilePaused.id);
  await whilePaused.kill();

  const whileResuming = await engine.create({});
  await engine.pause(whileResuming.id);
  const isResuming = stateReached(engine, whileResuming.id, "resuming");
  const resuming = engine.resume(whileResuming.id).catch((reason: unknown) => reason);
  await isResuming;
  await whileResuming.kill();
  expect(isSandboxError(await resuming, "sandbox_ended")).toBe(true);
  for (const { id } of [whilePausing, whilePaused, whileResuming]) {
    expect(engine.list().map((record) => record.id)).not.toContain(id);
  }
});

test("of two pauses at the same time one is refused because the sandbox is paused", async () => {
  const sandbox = await host.engine.create({});
  const results = await Promise.allSettled([host.engine.pause(sandbox.id), host.engine.pause(sandbox.id)]);
  expect(results.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
  expect(sandbox.state).toBe("paused");
  await sandbox.kill();
});
