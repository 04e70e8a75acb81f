import { PassThrough } from "node:stream";
import { SandboxError } from "@atoll/protocol";
import { expect, test } from "vitest";
import { waitForPort, type Dial } from "../../src/ports/wait-for-port.ts";

const refused = new SandboxError("spawn_failed", "Cannot connect to the port", { details: { errno: "ECONNREFUSED" } });

function openAfter(refusals: number): { dial: Dial; dialled: () => number; last: () => PassThrough } {
  let count = 0;
  let last = new PassThrough();
  return {
    dial: async () => {
      count += 1;
      if (count <= refusals) throw refused;
      last = new PassThrough();
      return last;
    },
    dialled: () => count,
    last: () => last,
  };
}

test("resolves when the port is open, and leaves no connection behind", async () => {
  const port = openAfter(6);
  await waitForPort(port.dial, 80, { timeoutMs: 60_000 });
  expect(port.dialled()).toBe(7);
  expect(port.last().destroyed).toBe(true);
});

test("rejects after the time limit", async () => {
  const port = openAfter(Infinity);
  await expect(waitForPort(port.dial, 80, { timeoutMs: 60 })).rejects.toMatchObject({ code: "timed_out" });
});

test("does not wait longer for a dial that never answers", async () => {
  const dial: Dial = (_port, { signal }) =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason as Error));
    });
  await expect(waitForPort(dial, 80, { timeoutMs: 60 })).rejects.toMatchObject({ code: "timed_out" });
});

test("rejects with the reason of the signal", async () => {
  const stop = new AbortController();
  const waiting = waitForPort(openAfter(Infinity).dial, 80, { timeoutMs: 60_000, signal: stop.signal });
  const reason = new Error("enough");
  stop.abort(reason);
  await expect(waiting).rejects.toBe(reason);
});

test("rejects at once when the sandbox has ended", async () => {
  const ended = new SandboxError("sandbox_ended", "Cannot go on");
  await expect(waitForPort(() => Promise.reject(ended), 80, { timeoutMs: 60_000 })).rejects.toBe(ended);
});
