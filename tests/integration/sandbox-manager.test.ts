import { readdir, truncate } from "node:fs/promises";
import { join } from "node:path";
import {
  CreateSandbox,
  RunCommand,
  RunOnce,
  SandboxLimits,
  SandboxTimeouts,
  TemplateName,
  type ApiEvent,
  type CommandId,
  type SandboxId,
} from "@atoll/protocol";
import { commandResult, type Command, type SandboxManager } from "@atoll/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createIn, openTestManager, readAll, start, type TestManager } from "../support/test-manager.ts";

let host: TestManager;
let manager: SandboxManager;
beforeAll(async () => {
  host = await openTestManager();
  ({ manager } = host);
});
afterAll(async () => {
  await host.dispose();
});

async function eventsOf(from: number, until: (event: ApiEvent) => boolean): Promise<ApiEvent[]> {
  const events: ApiEvent[] = [];
  for await (const event of manager.events.follow({ cursor: from, signal: AbortSignal.timeout(120_000) })) {
    events.push(event);
    if (until(event)) break;
  }
  return events;
}

describe("killing", () => {
  test("a sandbox reports its commands as lost to their followers, and leaves nothing", async () => {
    const id = await createIn(manager);
    const command = await start(manager, id, "echo started; sleep 1000");
    const following = readAll(command);
    await expect.poll(() => command.info().stdoutBytes).toBe(8);
    const killed = await Promise.all([manager.kill(id), manager.kill(id)]);
    expect(killed).toEqual([true, true]);
    expect(await manager.kill(id)).toBe(false);
    await following.catch((error: unknown) => expect(error).toMatchObject({ code: "sandbox_ended" }));
    expect(command.info()).toMatchObject({ state: "lost", exitCode: null });
    expect(command.info().lostBecause).toContain("killed");
    expect(() => manager.get(id)).toThrow(expect.objectContaining({ code: "not_found" }));
  });

  test("a sandbox while its commands start leaves nothing, too", async () => {
    const id = await createIn(manager);
    const starts = Array.from({ length: 20 }, () => start(manager, id, "sleep 1000"));
    const [killed, ...started] = await Promise.allSettled([manager.kill(id), ...starts]);
    expect(killed).toEqual({ status: "fulfilled", value: true });
    for (const result of started) {
      if (result.status === "fulfilled") expect(result.value.info().state).toBe("lost");
    }
  });

  test("a sandbox makes later changes fail", async () => {
    const id = await createIn(manager);
    const killing = manager.kill(id);
    await expect(manager.changes.update(id, { labels: { a: "b" } })).rejects.toMatchObject({ code: "sandbox_ended" });
    await killing;
  });
});

describe("timeouts", () => {
  test("an idle sandbox is killed, and a busy one is not", async () => {
    const timeouts = SandboxTimeouts.parse({ idleMs: 1_000 });
    const busy = await createIn(manager);
    const command = await start(manager, busy, { shell: "read line", stdin: true });
    await manager.changes.update(busy, { timeouts });
    const from = manager.events.cursor;
    const idle = await createIn(manager, { timeouts });
    const events = await eventsOf(from, (event) => event.type === "sandbox.state" && event.to === "killed");
    expect(events.at(-1)).toMatchObject({ sandboxId: idle, reason: { kind: "idle" } });
    expect(manager.get(busy)).toMatchObject({ state: "running", runningCommands: 1 });
    expect(manager.get(busy).endsAtMs).toBeUndefined();
    await command.closeStdin();
    await expect.poll(() => manager.list({ limit: 1000 }).sandboxes.map(({ id }) => id)).not.toContain(busy);
  });

  /** Resolves when a new sandbox has been idle for its whole timeout, so older idle sandboxes have been, too. */
  async function untilAnotherWasIdle(): Promise<void> {
    const from = manager.events.cursor;
    const idle = await createIn(manager, { timeouts: SandboxTimeouts.parse({ idleMs: 1_500 }) });
    const isItsEnd = (event: ApiEvent): boolean =>
      event.type === "sandbox.state" && event.to === "killed" && event.sandboxId === idle;
    expect((await eventsOf(from, isItsEnd)).at(-1)).toMatchObject({ reason: { kind: "idle" } });
  }
  const ids = (): SandboxId[] => manager.list({ limit: 1000 }).sandboxes.map(({ id }) => id);

  test("a background process of an ended command counts as work until it ends", async () => {
    const id = await createIn(manager, { timeouts: SandboxTimeouts.parse({ idleMs: 1_000 }) });
    const leave = "mkfifo go; setsid sh -c 'read line < go' >/dev/null 2>&1 &";
    expect(await (await start(manager, id, leave)).waitEnd()).toMatchObject({ exitCode: 0 });
    await untilAnotherWasIdle();
    expect(manager.get(id)).toMatchObject({ state: "running", runningCommands: 0 });
    await (await start(manager, id, "echo > go")).waitEnd();
    await expect.poll(ids).not.toContain(id);
  });

  test("a sandbox is idle while a command with keepAlive false runs, but not while a port is connected", async () => {
    const id = await createIn(manager, { timeouts: SandboxTimeouts.parse({ idleMs: 1_000 }) });
    const connected = manager.access.retain(id);
    const server = [
      "import socket",
      "s = socket.create_server(('127.0.0.1', 8000))",
      "print('up', flush=True)",
      "while True: s.accept()[0].recv(1)",
    ].join("\n");
    const command = await start(manager, id, { argv: ["python3", "-c", server], keepAlive: false });
    await expect.poll(() => command.info().stdoutBytes).toBe(3);
    const connection = await manager.dial(id, 8000, { signal: AbortSignal.timeout(10_000) });
    connected();
    await untilAnotherWasIdle();
    expect(manager.get(id)).toMatchObject({ state: "running", runningCommands: 1 });
    await (await start(manager, id, { shell: "setsid sleep 600 >/dev/null 2>&1 &", keepAlive: false })).waitEnd();
    connection.on("error", () => undefined).destroy();
    await expect.poll(ids).not.toContain(id);
    expect(command.info()).toMatchObject({ state: "lost", lostBecause: expect.stringContaining("idle") });
  });

  test("can be changed while the sandbox runs", async () => {
    const id = await createIn(manager);
    const { endsAtMs = 0 } = await manager.changes.update(id, {
      timeouts: SandboxTimeouts.parse({ lifetimeMs: 1_000 }),
    });
    expect(endsAtMs - Date.now()).toBeLessThanOrEqual(1_000);
    await expect.poll(() => manager.list({ limit: 1000 }).sandboxes.map(({ id }) => id)).not.toContain(id);
  });

  test("with the action pause are refused if memory cannot be saved", async () => {
    await expect(createIn(manager, { timeouts: { onTimeout: "pause" } })).rejects.toMatchObject({
      code: "unsupported",
    });
  });
});

describe("a hold", () => {
  test("refuses others until it is released or expires", async () => {
    const id = await createIn(manager);
    const [me, you] = ["me", "you"].map((holder) => ({ who: "key", holder })) as [
      { who: string; holder: string },
      { who: string; holder: string },
    ];
    expect(await manager.changes.hold(id, me, 60_000)).toMatchObject({ heldBy: "me" });
    await expect(manager.changes.hold(id, you, 1_000)).rejects.toMatchObject({ code: "in_use" });
    expect(() => manager.access.assertUsable(id, { who: "key", holder: undefined })).toThrow(
      expect.objectContaining({ code: "in_use" }),
    );
    // A refused client learns the name of the holder.
    const impostor = { ...me, who: "another key" };
    expect(() => manager.access.assertUsable(id, impostor)).toThrow(expect.objectContaining({ code: "in_use" }));
    await expect(manager.changes.hold(id, impostor, 1_000)).rejects.toMatchObject({ code: "in_use" });
    manager.access.assertUsable(id, me);
    await expect(manager.changes.unhold(id, you)).rejects.toMatchObject({ code: "in_use" });
    expect((await manager.changes.unhold(id, me)).heldBy).toBeUndefined();
    await manager.changes.hold(id, you, 1);
    await expect.poll(() => manager.get(id).heldBy).toBeUndefined();
    manager.access.assertUsable(id, { who: "key", holder: undefined });
  });
});

test("a list comes in pages, by label", async () => {
  const ids: SandboxId[] = [];
  for (let index = 0; index < 3; index += 1) ids.push(await createIn(manager, { labels: { page: "yes" } }));
  const first = manager.list({ limit: 2, label: "page=yes" });
  expect(first.sandboxes.map(({ id }) => id)).toEqual(ids.slice(0, 2));
  const second = manager.list({ limit: 2, label: "page=yes", cursor: first.next });
  expect(second.sandboxes.map(({ id }) => id)).toEqual(ids.slice(2));
  expect(second.next).toBeUndefined();
  expect(manager.list({ limit: 10 }, ({ id }) => id === ids[0]).sandboxes).toHaveLength(1);
});

test("events report the life of a sandbox and its commands in order", async () => {
  const from = manager.events.cursor;
  const id = await createIn(manager);
  const command = await start(manager, id, "exit 3");
  await command.waitEnd();
  await manager.kill(id);
  const events = await eventsOf(from, (event) => event.type === "sandbox.state" && event.to === "killed");
  const own = events.filter((event) => "sandboxId" in event && event.sandboxId === id);
  expect(own.map((event) => (event.type === "sandbox.state" ? event.to : event.type))).toEqual([
    "creating",
    "running",
    "command.started",
    "command.ended",
    "killing",
    "killed",
  ]);
  expect(own[3]).toMatchObject({ exitCode: 3, commandId: command.id });
});

test("every command has the environment of its sandbox, and its own variables take precedence", async () => {
  const id = await createIn(manager, { env: { A: "sandbox", B: "sandbox" } });
  const command = await start(manager, id, { shell: "echo $A $B", env: { B: "command" } });
  expect((await readAll(command)).text).toBe("sandbox command\n");
});

test("a token is valid only for its own sandbox", async () => {
  const request = CreateSandbox.parse({ driver: "local" });
  const [one, two] = await Promise.all([
    manager.create(request, { keyId: "test" }),
    manager.create(request, { keyId: "test" }),
  ]);
  expect(manager.access.verifyToken(one.sandbox.id, one.token)).toBe(true);
  expect(manager.access.verifyToken(two.sandbox.id, one.token)).toBe(false);
  await manager.kill(one.sandbox.id);
  expect(manager.access.verifyToken(one.sandbox.id, one.token)).toBe(false);
});

test("a one-off run returns its result and leaves nothing", async () => {
  const request = RunOnce.parse({
    language: "python",
    code: "import sys; print(open('data.txt').read() + sys.stdin.read()); sys.exit(4)",
    files: { "data.txt": "file " },
    stdin: "input",
    driver: "local",
  });
  const run = await manager.runOnce(request, { keyId: "test" });
  const result = await run.finish();
  expect(result).toMatchObject({ stdout: "file input\n", command: { exitCode: 4 } });
  expect(() => manager.get(run.sandboxId)).toThrow(expect.objectContaining({ code: "not_found" }));
});

test("a server that stops leaves sandboxes and commands to the next one, and ends waiting calls", async () => {
  const first = await openTestManager();
  const id = await createIn(first.manager);
  const command = await start(first.manager, id, { shell: "echo one; read line; echo two; exit 5", stdin: true });
  await expect.poll(() => command.info().stdoutBytes).toBe(4);
  const following = readAll(command);
  const waiting = command.waitEnd();
  const failures = Promise.allSettled([following, waiting]);
  await first.manager.shutdown();
  for (const result of await failures) expect(result).toMatchObject({ reason: { code: "unavailable" } });
  await expect(createIn(first.manager)).rejects.toMatchObject({ code: "unavailable" });

  const second = await openTestManager({ dataDir: first.dataDir });
  try {
    const again = second.manager.command(id, command.id);
    await again.writeStdin(Buffer.from("\n"), { offset: 0 });
    expect(await again.waitEnd()).toMatchObject({ exitCode: 5 });
    expect((await readAll(again)).text).toBe("one\ntwo\n");
  } finally {
    await second.dispose();
  }
});

test("output of an ended command that is lost on disk is reported as dropped by the next server", async () => {
  const first = await openTestManager();
  const id = await createIn(first.manager);
  const command = await start(first.manager, id, "seq 1 3; echo said last >&2");
  expect(await command.waitEnd()).toMatchObject({ stdoutBytes: 6, stderrBytes: 10, droppedBytes: 0 });
  const log = join(first.dataDir, "sandboxes", id, "owner", "commands", command.id, "head");
  await first.manager.shutdown();
  // A machine that lost its power may leave the log in this state.
  await truncate(log, 24 + 6);

  const second = await openTestManager({ dataDir: first.dataDir });
  try {
    const again = second.manager.command(id, command.id);
    expect(await readAll(again)).toEqual({ text: "1\n2\n3\n", droppedBytes: 10 });
    expect(await readAll(again, 12)).toEqual({ text: "", droppedBytes: 4 });
    expect(again.info()).toMatchObject({ stdoutBytes: 6, stderrBytes: 10, droppedBytes: 10 });
    expect(await commandResult(again)).toMatchObject({ stdout: "1\n2\n3\n", stderr: "", droppedBytes: 10 });
  } finally {
    await second.dispose();
  }
});

test("the kept output of ended commands is limited, and every server reports dropped output", async () => {
  let small = await openTestManager({ keptLogBytes: 150_000 });
  try {
    const id = await createIn(small.manager);
    const logs = join(small.dataDir, "sandboxes", id, "owner", "commands");
    const keptDirs = async (): Promise<string[]> => (await readdir(logs)).filter((name) => !name.includes("."));
    const say = async (bytes: number): Promise<CommandId> => {
      const command = await start(small.manager, id, { shell: `head -c ${bytes} /dev/zero`, logBytes: 1024 ** 3 });
      await command.waitEnd();
      return command.id;
    };
    const said = async (commandId: CommandId): Promise<unknown> => {
      const command = small.manager.command(id, commandId);
      const { text, droppedBytes } = await readAll(command);
      expect(command.info().droppedBytes).toBe(droppedBytes);
      return [text.length, droppedBytes];
    };
    const first = await say(60_000);
    const second = await say(60_000);
    expect(await said(first)).toEqual([60_000, 0]);
    const third = await say(60_000);
    await expect.poll(keptDirs).toEqual([second, third].toSorted());
    expect([await said(first), await said(second)]).toEqual([
      [0, 60_000],
      [60_000, 0],
    ]);
    await small.manager.shutdown();
    small = await openTestManager({ keptLogBytes: 150_000, dataDir: small.dataDir });
    expect([await said(first), await said(third)]).toEqual([
      [0, 60_000],
      [60_000, 0],
    ]);
    // The limit for one command is not above the limit for all together.
    const long = await say(1_000_000);
    await expect.poll(keptDirs).toEqual([long]);
    expect(small.manager.command(id, long).keptLogBytes).toBeLessThanOrEqual(150_000);
    expect([await said(second), await said(third)]).toEqual([
      [0, 60_000],
      [0, 60_000],
    ]);
  } finally {
    await small.dispose();
  }
});

test("the number of ended commands that are kept is limited", async () => {
  const small = await openTestManager({ keptCommands: 3 });
  try {
    const id = await createIn(small.manager);
    const ids: CommandId[] = [];
    for (let index = 0; index < 5; index += 1) {
      const command = await start(small.manager, id, "true");
      ids.push(command.id);
      await command.waitEnd();
    }
    expect(small.manager.commands(id).map((command) => command.id)).toEqual(ids.slice(2));
  } finally {
    await small.dispose();
  }
});

test("a long command is kept with its output and its key, however many commands ended before it", async () => {
  const small = await openTestManager({ keptCommands: 3, keptLogBytes: 150_000 });
  try {
    const id = await createIn(small.manager);
    const say = "head -c 60000 /dev/zero";
    const request = RunCommand.parse({ shell: `read; ${say}`, stdin: true });
    const run = (): Promise<Command> => small.manager.run(id, request, { idempotencyKey: "long" });
    const runShort = async (): Promise<unknown> => (await start(small.manager, id, say)).waitEnd();
    const long = await run();
    for (let index = 0; index < 5; index += 1) await runShort();
    await long.writeStdin(Buffer.from("\n"));
    expect(await commandResult(long)).toMatchObject({ stdout: "\0".repeat(60_000), droppedBytes: 0 });
    expect(small.manager.command(id, long.id)).toBe(long);
    expect(await run()).toBe(long);
    // A command whose log is being read stays.
    const reading = long.follow();
    await reading.next();
    for (let index = 0; index < 4; index += 1) await runShort();
    expect(small.manager.command(id, long.id)).toBe(long);
    await reading.return();
    await runShort();
    expect(small.manager.commands(id).map((command) => command.id)).not.toContain(long.id);
  } finally {
    await small.dispose();
  }
});

describe("the pool", () => {
  const shape = {
    template: TemplateName.parse("host"),
    driver: "local" as const,
    limits: SandboxLimits.parse({}),
  };

  test("gives each sandbox to one client, and is filled again", async () => {
    const pooled = await openTestManager({ pool: [{ shape, count: 2 }] });
    try {
      await expect.poll(() => pooled.manager.counts().pooled).toBe(2);
      const ids = await Promise.all(Array.from({ length: 4 }, () => createIn(pooled.manager)));
      expect(new Set(ids).size).toBe(4);
      await expect.poll(() => pooled.manager.counts().pooled).toBe(2);
      expect(pooled.manager.counts().sandboxes).toBe(4);
      const command = await start(pooled.manager, ids[0] ?? (await createIn(pooled.manager)), "echo works");
      expect((await readAll(command)).text).toBe("works\n");
    } finally {
      await pooled.dispose();
    }
  });

  test("of a server that died is not used by the next one", async () => {
    const pooled = await openTestManager({ pool: [{ shape, count: 1 }] });
    await expect.poll(() => pooled.manager.counts().pooled).toBe(1);
    const [left] = pooled.manager.engine.list();
    // This simulates a crash: the sandboxes of the pool are not removed.
    await pooled.manager.engine.close();
    const next = await openTestManager({ dataDir: pooled.dataDir });
    try {
      expect(next.manager.engine.list().map(({ id }) => id)).not.toContain(left?.id);
      expect(next.manager.list({ limit: 10 }).sandboxes).toEqual([]);
    } finally {
      await next.dispose();
    }
  });
});
