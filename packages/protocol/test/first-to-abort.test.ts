import { getEventListeners } from "node:events";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { firstToAbort } from "../src/index.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

test("it aborts with the reason of the first one, and ignores the others", () => {
  const [one, two] = [new AbortController(), new AbortController()];
  const first = firstToAbort(one.signal, undefined, two.signal);
  expect(first.aborted).toBe(false);
  two.abort("two");
  one.abort("one");
  expect(first.reason).toBe("two");
});

test("if several have aborted before, the first argument counts", () => {
  const waiting = new AbortController();
  const first = firstToAbort(waiting.signal, AbortSignal.abort("one"), AbortSignal.abort("two"));
  expect(first.reason).toBe("one");
  waiting.abort("waiting");
  expect(first.reason).toBe("one");
});

test("one listener on a signal serves all that wait for it", () => {
  const persistent = new AbortController();
  const all = Array.from({ length: 100 }, () => firstToAbort(persistent.signal, new AbortController().signal));
  expect(getEventListeners(persistent.signal, "abort")).toHaveLength(1);
  persistent.abort("over");
  expect(all.map(({ reason }) => reason as unknown)).toEqual(all.map(() => "over"));
});

test("no listener is left on a long-lived signal when another has aborted or it is disposed", () => {
  const persistent = new AbortController();
  const round = (): void => {
    using disposed = firstToAbort(persistent.signal, new AbortController().signal);
    const over = new AbortController();
    const aborted = firstToAbort(persistent.signal, over.signal);
    over.abort();
    expect([disposed.aborted, aborted.aborted]).toEqual([false, true]);
  };
  const bytesAfter = (rounds: number): number => {
    for (let each = 0; each < rounds; each += 1) round();
    collectGarbage();
    return process.memoryUsage().heapUsed;
  };
  const grows = (): boolean => {
    const before = bytesAfter(1_000);
    return (bytesAfter(20_000) - before) / 20_000 >= 25;
  };
  // A leak grows each time. Other test files in this process may allocate during one measurement.
  expect(grows() && grows() && grows()).toBe(false);
});

test("a disposed signal never aborts", () => {
  const persistent = new AbortController();
  const first = firstToAbort(persistent.signal);
  first[Symbol.dispose]();
  persistent.abort();
  expect(first.aborted).toBe(false);
});

test("without signals it never aborts", () => {
  expect(firstToAbort(undefined).aborted).toBe(false);
});
