import { CommandId, RunCommand } from "@atoll/protocol";
import { commandResult } from "@atoll/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createIn, openTestManager, readAll, start, type TestManager } from "../support/test-manager.ts";

let host: TestManager;
beforeAll(async () => {
  host = await openTestManager();
});
afterAll(async () => {
  await host.dispose();
});

describe("a command", () => {
  test("reports its output and its exit code", async () => {
    const id = await createIn(host.manager);
    const command = await start(host.manager, id, "echo out; echo err >&2; exit 7");
    expect(await commandResult(command)).toMatchObject({
      stdout: "out\n",
      stderr: "err\n",
      droppedBytes: 0,
      command: { state: "exited", exitCode: 7, signal: null, stdoutBytes: 4, stderrBytes: 4 },
    });
  });

  test("can be followed by any number of clients from any byte", async () => {
    const id = await createIn(host.manager);
    const command = await start(host.manager, id, {
      shell: "for i in 1 2 3 4 5; do echo $i; read line; done",
      stdin: true,
    });
    const first = readAll(command);
    for (let line = 1; line <= 5; line += 1) await command.writeStdin(Buffer.from("\n"), { offset: line - 1 });
    await command.waitEnd();
    const whole = "1\n2\n3\n4\n5\n";
    expect((await first).text).toBe(whole);
    for (let from = 0; from <= whole.length; from += 1) {
      expect((await readAll(command, from)).text).toBe(whole.slice(from));
    }
    await expect(readAll(command, whole.length + 1)).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("that cannot be started leaves nothing", async () => {
    const id = await createIn(host.manager);
    await expect(start(host.manager, id, { argv: ["/no/such/program"] })).rejects.toMatchObject({
      code: "spawn_failed",
    });
    expect(host.manager.commands(id)).toEqual([]);
  });

  test("keeps the beginning and the end of long output, and reports exactly what is missing", async () => {
    const id = await createIn(host.manager);
    const command = await start(host.manager, id, { shell: "seq -f '%09.0f' 1 100000", logBytes: 65_536 });
    const { stdoutBytes, droppedBytes } = await command.waitEnd();
    expect(stdoutBytes).toBe(1_000_000);
    const { text, droppedBytes: dropped } = await readAll(command);
    expect(dropped).toBe(droppedBytes);
    expect(text.length + dropped).toBe(stdoutBytes);
    expect(text.length).toBeGreaterThan(65_536 * 0.85);
    expect(text.length).toBeLessThanOrEqual(65_536);
    const all = Array.from({ length: 100_000 }, (_, i) => `${String(i + 1).padStart(9, "0")}\n`).join("");
    expect(text.slice(0, 16_384)).toBe(all.slice(0, 16_384));
    expect(text.slice(16_384)).toBe(all.slice(all.length - (text.length - 16_384)));
  });

  test("is not found under another id", async () => {
    const id = await createIn(host.manager);
    expect(() => host.manager.command(id, CommandId.parse(`cmd${"a".repeat(20)}`))).toThrow(
      expect.objectContaining({ code: "not_found" }),
    );
  });

  test("ends at its time limit, and reports that", async () => {
    const id = await createIn(host.manager);
    const command = await start(host.manager, id, { shell: "sleep 100", timeoutMs: 50 });
    expect(await command.waitEnd()).toMatchObject({ state: "exited", timedOut: true });
  });

  test("has a terminal on request", async () => {
    const id = await createIn(host.manager);
    const command = await start(host.manager, id, {
      shell: "stty size; read x; stty size",
      pty: { rows: 24, cols: 80 },
    });
    await command.resize({ rows: 30, cols: 100 });
    await command.writeStdin(Buffer.from("go\n"));
    await command.waitEnd();
    expect((await readAll(command)).text).toContain("30 100");
  });
});

describe("input", () => {
  test("is accepted once and in order, even if it is sent again", async () => {
    const id = await createIn(host.manager);
    const command = await start(host.manager, id, { argv: ["cat"], stdin: true });
    expect(await command.writeStdin(Buffer.from("hello "), { offset: 0 })).toBe(6);
    expect(await command.writeStdin(Buffer.from("hello wor"), { offset: 0 })).toBe(9);
    expect(await command.writeStdin(Buffer.from("o wor"), { offset: 4 })).toBe(9);
    await expect(command.writeStdin(Buffer.from("!"), { offset: 12 })).rejects.toMatchObject({
      code: "invalid_argument",
      details: { stdinBytes: 9 },
    });
    expect(await command.writeStdin(Buffer.from("ld"))).toBe(11);
    await expect(command.closeStdin({ offset: 12 })).rejects.toMatchObject({ code: "invalid_argument" });
    expect(await command.closeStdin({ offset: 11 })).toBe(11);
    expect(await commandResult(command)).toMatchObject({ stdout: "hello world", command: { stdinBytes: 11 } });
    expect(await command.closeStdin()).toBe(11);
    // A client that missed the reply can send the same bytes again, but not bytes after a gap.
    expect(await command.writeStdin(Buffer.from("o world"), { offset: 4 })).toBe(11);
    const more = command.writeStdin(Buffer.from("o world!"), { offset: 4 });
    await expect(more).rejects.toMatchObject({ code: "invalid_state" });
    await expect(command.writeStdin(Buffer.from("x"))).rejects.toMatchObject({ code: "invalid_state" });
  });

  test("continues after a writer gave up in the middle", async () => {
    const id = await createIn(host.manager);
    await (await start(host.manager, id, "mkfifo go")).waitEnd();
    const command = await start(host.manager, id, { shell: "read go < go; wc -c", stdin: true });
    const data = Buffer.alloc(2_000_000, "x");
    const leave = new AbortController();
    const written = command.writeStdin(data, { offset: 0, signal: leave.signal });
    await expect.poll(() => command.info().stdinBytes).toBeGreaterThan(0);
    leave.abort(new Error("the client left"));
    await expect(written).rejects.toThrow("the client left");
    expect(command.info().stdinBytes).toBeLessThan(data.byteLength);
    const again = command.writeStdin(data, { offset: 0 });
    await start(host.manager, id, "echo go > go");
    expect(await again).toBe(data.byteLength);
    await command.closeStdin();
    expect((await commandResult(command)).stdout.trim()).toBe("2000000");
  });

  test("is refused by a command without stdin", async () => {
    const id = await createIn(host.manager);
    const command = await start(host.manager, id, "sleep 100");
    await expect(command.writeStdin(Buffer.from("x"))).rejects.toMatchObject({ code: "invalid_state" });
    await command.signal("SIGKILL");
    expect(await command.waitEnd()).toMatchObject({ exitCode: null, signal: "SIGKILL" });
  });
});

describe("an idempotency key", () => {
  const request = RunCommand.parse({ shell: "echo once >> /home/user/count; cat /home/user/count" });

  test("makes a retry the same command", async () => {
    const id = await createIn(host.manager);
    const [first, second] = await Promise.all([
      host.manager.run(id, request, { idempotencyKey: "a" }),
      host.manager.run(id, request, { idempotencyKey: "a" }),
    ]);
    await first.waitEnd();
    const third = await host.manager.run(id, request, { idempotencyKey: "a" });
    expect([second.id, third.id]).toEqual([first.id, first.id]);
    expect((await readAll(third)).text).toBe("once\n");
  });

  test("is refused with another request", async () => {
    const id = await createIn(host.manager);
    await host.manager.run(id, request, { idempotencyKey: "a" });
    const other = RunCommand.parse({ shell: "true" });
    await expect(host.manager.run(id, other, { idempotencyKey: "a" })).rejects.toMatchObject({
      code: "invalid_argument",
    });
  });
});
