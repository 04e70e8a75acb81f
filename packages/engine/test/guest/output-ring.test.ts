import type { OutputEvent } from "@atoll/host";
import { describe, expect, test } from "vitest";
import { OutputRing } from "../../src/guest/output-ring.ts";
import { SeededRandom } from "../support/seeded-random.ts";

const most = 65_536;

function event(data: Buffer | string, at: number, stream: OutputEvent["stream"] = "stdout"): OutputEvent {
  return { stream, data: Buffer.from(data), offset: at, at };
}

/** Returns the oldest piece as a copy, and drops it. */
function take(ring: OutputRing, bytes = most): [string, number] | undefined {
  const first = ring.first(bytes);
  if (first === undefined) return undefined;
  const text = first.data.toString("latin1");
  ring.drop(first.data.byteLength);
  return [text, first.at];
}

describe("pieces", () => {
  test("what one stream wrote in a row is one piece, another stream begins another", () => {
    const ring = new OutputRing();
    ring.push(event("ab", 0));
    ring.push(event("cd", 2));
    ring.push(event("e", 4, "stderr"));
    expect(take(ring)).toEqual(["abcd", 0]);
    expect(take(ring)).toEqual(["e", 4]);
    expect(ring.isEmpty).toBe(true);
    expect(ring.first(most)).toBeUndefined();
  });

  test("a long one comes in parts, and the offsets go on", () => {
    const ring = new OutputRing();
    ring.push(event("abcdef", 10));
    expect([take(ring, 4), take(ring, 4)]).toEqual([
      ["abcd", 10],
      ["ef", 14],
    ]);
  });

  test("a piece may grow after it was read, and is dropped as far as it was read", () => {
    const ring = new OutputRing();
    ring.push(event("ab", 0));
    const first = ring.first(most);
    ring.push(event("cd", 2));
    expect(first?.data.toString()).toBe("ab");
    ring.drop(2);
    expect(take(ring)).toEqual(["cd", 2]);
  });

  test("a ring that was cleared drops nothing", () => {
    const ring = new OutputRing();
    ring.push(event("ab", 0));
    ring.clear();
    ring.drop(2);
    expect(ring.isEmpty).toBe(true);
    ring.push(event("cd", 2));
    expect(take(ring)).toEqual(["cd", 2]);
  });
});

describe("memory", () => {
  test("a ring that was cleared keeps none", () => {
    const ring = new OutputRing();
    ring.push(event(Buffer.alloc(60_000), 0));
    expect(ring.bufferedBytes).toBe(65_536);
    ring.clear();
    expect(ring.bufferedBytes).toBe(0);
  });

  test("views do not change while more comes, also when the ring grows", () => {
    const ring = new OutputRing();
    ring.push(event(Buffer.alloc(3000, "a"), 0));
    take(ring, 2000);
    const lent = ring.first(most);
    for (let at = 3000; at < 13_000; at += 1000) ring.push(event(Buffer.alloc(1000, "b"), at));
    expect(lent?.data.toString()).toBe("a".repeat(1000));
  });

  test("a stream that is read as it comes uses the same bytes again", () => {
    const ring = new OutputRing();
    const places = new Set<number>();
    for (let at = 0; at < 100_000; at += 100) {
      ring.push(event(Buffer.alloc(100), at));
      places.add(ring.first(most)?.data.byteOffset ?? -1);
      take(ring);
    }
    expect([...places]).toEqual([0]);
  });
});

test("any sequence of pushes and takes gives back what was pushed", () => {
  const random = SeededRandom.forFuzz("ring");
  for (let plan = 0; plan < 200; plan += 1) {
    const ring = new OutputRing();
    const offsets = { stdout: 0, stderr: 0 };
    const taken = { stdout: 0, stderr: 0 };
    const order: string[] = [];
    const [pushed, got]: [Buffer[], Buffer[]] = [[], []];
    let [at, takenAt] = [0, 0];
    const push = (): void => {
      const stream = random.oneOf(["stdout", "stderr"] as const);
      const data = random.bytes(1 + random.below(random.oneOf([3, 300, 6000])));
      ring.push({ stream, data, offset: offsets[stream], at });
      pushed.push(data);
      order.push(...Array.from(data, () => stream));
      offsets[stream] += data.byteLength;
      at += data.byteLength;
    };
    const takeSome = (): void => {
      const first = ring.first(1 + random.below(5000));
      if (first === undefined) return expect(takenAt).toBe(at);
      const { stream, data, offset } = first;
      expect([first.at, offset]).toEqual([takenAt, taken[stream]]);
      expect(new Set(order.slice(takenAt, takenAt + data.byteLength))).toEqual(new Set([stream]));
      got.push(Buffer.from(data));
      ring.drop(data.byteLength);
      taken[stream] += data.byteLength;
      takenAt += data.byteLength;
    };
    for (let step = 0; step < 60; step += 1) random.oneOf([push, takeSome])();
    while (!ring.isEmpty) takeSome();
    expect(Buffer.concat(got).equals(Buffer.concat(pushed))).toBe(true);
    expect(taken).toEqual(offsets);
  }
});
