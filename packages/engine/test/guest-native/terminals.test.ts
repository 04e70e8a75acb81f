import { readlinkSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { Gate } from "../support/gate.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const pty = { rows: 33, cols: 77 };

describe("a terminal", { timeout: testTimeoutMs }, () => {
  test("has the requested size, and changes it", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "stty size; read line; stty size"], { pty });
    const stream = guest.stream(id);
    await guest.until(() => stream.stdout.includes("33 77"));
    guest.send("RESIZE", id, new PayloadWriter().u16(50).u16(120).finish());
    guest.stdin(id, 0, "go\n");
    expect((await guest.finish(id)).stdout.toString()).toContain("50 120");
  });

  test("is the controlling one, for stdin, stdout and stderr alike", async () => {
    await using guest = await NativeGuest.start();
    const { stdout, stderr, exit } = await guest.shell("tty; tty <&2; echo to-tty >/dev/tty; echo err >&2; exit 4", {
      pty,
    });
    const [first, second, ...rest] = stdout.toString().split("\r\n");
    expect(first).toMatch(/^\/dev\/pts\/\d+$/);
    expect(second).toBe(first);
    expect(rest).toEqual(["to-tty", "err", ""]);
    expect(stderr.byteLength).toBe(0);
    expect(exit).toMatchObject({ exitCode: 4 });
  });

  test("turns Ctrl-C into a signal for what runs in front", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/cat"], { pty });
    guest.stdin(id, 0, "line\n");
    await guest.until(() => guest.stream(id).stdout.toString() === "line\r\nline\r\n");
    guest.stdin(id, 5, "\u0003");
    expect((await guest.finish(id)).exit).toMatchObject({ signal: "SIGINT" });
  });

  test.for(["line\n", "half a line"])("STDIN_EOF after %j ends the reader", async (text) => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/cat"], { pty });
    await guest.feed(id, Buffer.from(text));
    const { stdout, exit } = await guest.finish(id);
    expect(exit).toMatchObject({ exitCode: 0 });
    expect(stdout.toString().split(text.trim())).toHaveLength(3);
  });

  test("loses nothing of what was written just before the end", async () => {
    await using guest = await NativeGuest.start();
    const all = Array.from({ length: 30 }, () => guest.shell("seq 1 3000; printf last", { pty }));
    for (const { stdout } of await Promise.all(all)) {
      expect(stdout.toString().split("\r\n")).toHaveLength(3001);
      expect(stdout.toString().endsWith("3000\r\nlast")).toBe(true);
    }
  });

  test("does not kill a process that has closed it and still runs", async () => {
    await using guest = await NativeGuest.start();
    using gate = new Gate();
    const script = `exec </dev/null >/dev/null 2>&1; ${gate.wait}; exit 9`;
    const id = guest.spawn(["/bin/sh", "-c", script], { pty });
    const stream = guest.stream(id);
    await guest.until(() => stream.pid !== undefined);
    await expect.poll(() => readlinkSync(`/proc/${stream.pid}/fd/2`)).toBe("/dev/null");
    // The guest has had its turn with a terminal that no process has open.
    await guest.settle();
    gate.open();
    const { exit } = await guest.finish(id);
    expect(exit).toMatchObject({ exitCode: 9 });
  });

  test("hangs up on what is in front when its leader dies", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "echo up; sleep 60"], { pty });
    await guest.until(() => guest.stream(id).stdout.includes("up"));
    guest.signal(id, 1);
    expect((await guest.finish(id)).exit).toMatchObject({ signal: "SIGHUP" });
    await expect.poll(() => guest.ask("COUNT")).toMatchObject({ processes: 0 });
  });

  test("survives a new host", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "while read line; do echo got $line; done"], { pty });
    guest.stdin(id, 0, "one\n");
    const stream = guest.stream(id);
    await guest.until(() => stream.stdout.includes("got one"));
    const [entry] = await guest.hello();
    expect(entry).toMatchObject({ id, hasPty: true, inputClosed: false, inputHandedOn: 4 });
    guest.sendPosition("ATTACH", id, stream.at);
    guest.stdin(id, 4, "two\n");
    await guest.until(() => stream.stdout.includes("got two"));
  });

  test("RESIZE of a process without one does nothing", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "read line; exit 2"], { stdin: true });
    guest.send("RESIZE", id, new PayloadWriter().u16(1).u16(1).finish());
    guest.sendPosition("STDIN_EOF", id, 0);
    expect((await guest.finish(id)).exit).toMatchObject({ exitCode: 2 });
  });
});
