import { SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { Arrivals } from "../../src/persistence/arrivals.ts";

const id = SandboxId.parse("r".repeat(20));

function world() {
  const takes: { signal: AbortSignal; finish: () => void }[] = [];
  const arrivals = new Arrivals(
    (_, signal) =>
      new Promise((resolve, reject) => {
        takes.push({ signal, finish: resolve });
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      }),
  );
  return { arrivals, takes };
}

test("many who wait for a sandbox wait for one arrival; one who leaves takes nothing from the others", async () => {
  const { arrivals, takes } = world();
  const leaving = new AbortController();
  const left = arrivals.await(id, leaving.signal);
  const stays = arrivals.await(id, new AbortController().signal);
  leaving.abort(new Error("the client left"));
  await expect(left).rejects.toThrow("the client left");
  expect(arrivals.has(id)).toBe(true);
  takes[0]?.finish();
  await stays;
  expect(takes).toHaveLength(1);
  expect(arrivals.has(id)).toBe(false);
});

test("when all have left it is given up, and whoever asks next begins anew", async () => {
  const { arrivals, takes } = world();
  const leaving = new AbortController();
  const left = arrivals.await(id, leaving.signal);
  leaving.abort(new Error("the client left"));
  await expect(left).rejects.toThrow("the client left");
  expect(takes[0]?.signal.aborted).toBe(true);
  const next = arrivals.await(id, new AbortController().signal);
  takes[1]?.finish();
  await next;
  expect(takes).toHaveLength(2);
});
