import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import { protocolConstants } from "../../src/guest/frames.ts";
import { Gate } from "../support/gate.ts";
import { SeededRandom } from "../support/seeded-random.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest, spawnPayload } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

describe("output", { timeout: testTimeoutMs }, () => {
  test("stdout and stderr keep their bytes, their order and their offsets", async () => {
    await using guest = await NativeGuest.start();
    const { stdout, stderr, exit } = await guest.shell(
      "i=0; while [ $i -lt 500 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done",
    );
    const lines = (letter: string): string => Array.from({ length: 500 }, (_, line) => `${letter}${line}\n`).join("");
    expect(stdout.toString()).toBe(lines("o"));
    expect(stderr.toString()).toBe(lines("e"));
    expect(exit).toMatchObject({ exitCode: 0, at: stdout.byteLength + stderr.byteLength });
  });

  test.for([4096, 65_536, 0])(
    "stderr comes after the stdout that was written before it, window %i",
    async (windowBytes) => {
      await using guest = await NativeGuest.start();
      const { output } = await guest.shell("seq 1 100000; echo then >&2; exit 1", { windowBytes });
      expect(output.subarray(-12).toString()).toBe("100000\nthen\n");
    },
  );

  test("stdout comes after the stderr that was waiting before it", async () => {
    await using guest = await NativeGuest.start();
    guest.acknowledges = false;
    // All of stderr fits into its pipe, where most of it still waits when stdout comes.
    const script = "seq 1 10000 >&2; read go; echo then";
    const id = guest.spawn(["/bin/sh", "-c", script], { windowBytes: 4096, stdin: true });
    const stream = guest.stream(id);
    await guest.until(() => stream.at === 4096 && stream.pid !== undefined);
    guest.stdin(id, 0, "\n");
    await expect.poll(() => existsSync(`/proc/${stream.pid}`)).toBe(false);
    guest.acknowledges = true;
    guest.sendPosition("ACK", id, 4096);
    expect((await guest.finish(id)).output.subarray(-11).toString()).toBe("10000\nthen\n");
  });

  test("large binary output arrives as it was written", async () => {
    await using guest = await NativeGuest.start();
    const { stdout, stderr } = await guest.shell(
      'd=$(mktemp) && head -c 20000000 /dev/urandom >"$d" && cat "$d" && sha256sum <"$d" >&2; rm "$d"',
    );
    expect(stdout.byteLength).toBe(20_000_000);
    expect(createHash("sha256").update(stdout).digest("hex")).toBe(stderr.toString().slice(0, 64));
  });

  test.for([1, 100, 4096, 65_537, protocolConstants.WINDOW_MAX])(
    "a window of %i bytes makes the writer wait at exactly that many",
    async (windowBytes) => {
      await using guest = await NativeGuest.start();
      guest.acknowledges = false;
      const id = guest.spawn(["/bin/sh", "-c", "head -c 2500000 /dev/zero; echo done >&2"], { windowBytes });
      const stream = guest.stream(id);
      await guest.until(() => stream.at === windowBytes);
      // The guest has more to send in every turn, and would have sent it after each of these turns.
      for (let turn = 0; turn < 10; turn += 1) await guest.settle();
      expect(stream.at).toBe(windowBytes);
      expect(stream.exit).toBeUndefined();
      if (windowBytes < 4096) return;
      guest.acknowledges = true;
      guest.sendPosition("ACK", id, stream.at);
      await guest.finish(id);
      expect(stream.outputBytes).toEqual({ 1: 2_500_000, 2: 5 });
    },
  );

  test("an ACK of what was not sent is ignored", async () => {
    await using guest = await NativeGuest.start();
    guest.acknowledges = false;
    const id = guest.spawn(["/bin/sh", "-c", "head -c 100000 /dev/zero"], { windowBytes: 4096 });
    await guest.until(() => guest.stream(id).at === 4096);
    guest.sendPosition("ACK", id, 4097);
    guest.sendPosition("ACK", id, 0xffff_ffff_ffff_ffffn);
    await guest.settle();
    expect(guest.stream(id).at).toBe(4096);
    guest.acknowledges = true;
    guest.sendPosition("ACK", id, 4096);
    guest.sendPosition("ACK", id, 100);
    expect((await guest.finish(id)).at).toBe(100_000);
  });

  test("a window above the limit is refused", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/true"], { windowBytes: protocolConstants.WINDOW_MAX + 1 });
    guest.stream(id);
    expect((await guest.finish(id)).failed).toMatchObject({ errno: 22 });
  });
});

describe("the end", { timeout: testTimeoutMs }, () => {
  test("EXIT comes after all output that was in the pipes, also when the window was full", async () => {
    await using guest = await NativeGuest.start();
    guest.acknowledges = false;
    // Both fit into the pipes, so the process is gone long before its output is read.
    const id = guest.spawn(["/bin/sh", "-c", "head -c 60000 /dev/zero; head -c 30000 /dev/zero >&2; exit 3"], {
      windowBytes: 4096,
    });
    const stream = guest.stream(id);
    await guest.until(() => stream.at === 4096);
    await expect.poll(() => guest.ask("COUNT")).toMatchObject({ processes: 0 });
    await guest.settle();
    expect(stream.exit).toBeUndefined();
    guest.acknowledges = true;
    guest.sendPosition("ACK", id, stream.at);
    await guest.finish(id);
    expect(stream.exit).toMatchObject({ exitCode: 3, at: 90_000 });
  });

  test("output may continue after EXIT while another process has the pipe open, until END", async () => {
    await using guest = await NativeGuest.start();
    using gate = new Gate();
    const id = guest.spawn(["/bin/sh", "-c", `(${gate.wait}; echo late) & echo now; exit 4`]);
    const stream = guest.stream(id);
    await guest.until(() => stream.exit !== undefined);
    expect(stream.exit).toMatchObject({ exitCode: 4, at: 4 });
    expect(stream.endAt).toBeUndefined();
    gate.open();
    await guest.finish(id);
    expect(stream.stdout.toString()).toBe("now\nlate\n");
    expect(stream.endAt).toBe(9);
  });

  test("a writer that never pauses cannot keep EXIT back", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "yes & read line; exit 5"], { stdin: true });
    const stream = guest.stream(id);
    stream.keepsOutput = false;
    await guest.until(() => stream.at > 0);
    guest.stdin(id, 0, "\n");
    await guest.until(() => stream.exit !== undefined);
    expect(stream.exit).toMatchObject({ exitCode: 5 });
    guest.signal(id, 9);
    await guest.finish(id);
  });

  test("END may come long before EXIT", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "echo x; exec >&- 2>&-; read line"], { stdin: true });
    const stream = guest.stream(id);
    await guest.until(() => stream.endAt === 2);
    expect(stream.exit).toBeUndefined();
    guest.sendPosition("STDIN_EOF", id, 0);
    await guest.finish(id);
  });
});

describe("continuing after the death of a host", { timeout: testTimeoutMs }, () => {
  test("a record stays until it is released, with its exit and what was not acknowledged", async () => {
    await using guest = await NativeGuest.start();
    guest.acknowledges = false;
    const id = guest.spawn(["/bin/sh", "-c", "printf hello; exit 6"]);
    const stream = guest.stream(id);
    await guest.until(() => stream.isOver);
    for (let greetings = 0; greetings < 3; greetings += 1) {
      const [entry] = await guest.hello();
      expect(entry).toMatchObject({
        id,
        state: "exited",
        outputEnded: true,
        inputClosed: true,
        ackedAt: 0,
        producedAt: 5,
      });
      expect(entry?.exit).toMatchObject({ exitCode: 6, at: 5 });
      stream.forgetBeyond(2);
      guest.sendPosition("ATTACH", id, 2);
      await guest.until(() => stream.isOver);
      expect(stream.stdout.toString()).toBe("hello");
    }
    guest.sendPosition("ACK", id, 5);
    await guest.settle();
    expect((await guest.hello())[0]).toMatchObject({ ackedAt: 5 });
    guest.send("RELEASE", id);
    expect(await guest.hello()).toEqual([]);
  });

  test("ATTACH outside of the buffered output is refused", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "printf hello; sleep 60"]);
    await guest.until(() => guest.stream(id).at === 5);
    await guest.settle();
    await guest.hello();
    for (const at of [0, 4, 6, 0xffff_ffff_ffff_ffffn]) {
      guest.stream(id).failed = undefined;
      guest.sendPosition("ATTACH", id, at);
      await guest.until(() => guest.stream(id).failed !== undefined);
      expect(guest.stream(id).failed).toMatchObject({ errno: 22 });
    }
    guest.sendPosition("ATTACH", id, 5);
    await guest.settle();
    expect(await guest.ask("ATTACH", Buffer.alloc(8))).toMatchObject({ type: "failed", errno: 3 });
  });

  test("every byte arrives exactly once across hosts that die at any moment", async () => {
    await using guest = await NativeGuest.start();
    const random = SeededRandom.forFuzz("greetings");
    const id = guest.spawn(["/bin/sh", "-c", "seq 1 60000; seq 1 20000 >&2; seq 60001 90000"], { windowBytes: 50_000 });
    const stream = guest.stream(id);
    let acked = 0;
    guest.acknowledges = false;
    while (!stream.isOver) {
      const target = stream.at + 1 + random.below(60_000);
      await guest.until(() => stream.at >= target || stream.at - acked === 50_000 || stream.isOver);
      // The host has stored some of what came, and dies.
      const kept = acked + random.below(stream.at - acked + 1);
      guest.sendPosition("ACK", id, kept);
      acked = kept;
      if (random.below(2) === 0) continue;
      const entries = await guest.hello({ padded: random.below(2) === 0 });
      expect(entries[0]).toMatchObject({ id, ackedAt: acked });
      stream.forgetBeyond(acked);
      guest.sendPosition("ATTACH", id, acked);
    }
    const numbers = (from: number, to: number): string =>
      Array.from({ length: to - from + 1 }, (_, index) => `${from + index}\n`).join("");
    expect(stream.stdout.toString()).toBe(numbers(1, 90_000));
    expect(stream.stderr.toString()).toBe(numbers(1, 20_000));
  });
});

describe("RELEASE", { timeout: testTimeoutMs }, () => {
  test("a living process runs on without a reader, does not block, and takes its record with it", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "echo x; read line; head -c 3000000 /dev/zero"], { stdin: true });
    await guest.until(() => guest.stream(id).at === 2);
    guest.send("RELEASE", id);
    guest.stdin(id, 0, "go\n");
    const again = guest.spawn(["/bin/true"]);
    await guest.finish(again);
    expect(await guest.hello()).toEqual([]);
    await guest.until(() => {
      guest.send("COUNT", 5000);
      const answer = guest.answers.get(5000);
      return answer?.type === "counted" && answer.streams === 0;
    });
    expect(guest.stream(id).at).toBe(2);
  });

  test("an id is taken until its stream is released", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "exit 1"]);
    const stream = guest.stream(id);
    await guest.until(() => stream.isOver);
    guest.send("SPAWN", id, spawnPayload(["/bin/true"]));
    await guest.until(() => stream.failed !== undefined);
    expect(stream.failed).toMatchObject({ errno: 17 });
    guest.streams.delete(id);
    guest.send("RELEASE", id);
    guest.send("SPAWN", id, spawnPayload(["/bin/true"]));
    expect((await guest.finish(id)).exit).toMatchObject({ exitCode: 0 });
  });
});
