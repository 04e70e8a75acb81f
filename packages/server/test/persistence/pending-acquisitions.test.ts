import { SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { PendingAcquisitions } from "../../src/persistence/pending-acquisitions.ts";

const id = SandboxId.parse("r".repeat(20));

function world() {
  const takes: { signal: AbortSignal; finish: () => void }[] = [];
  const pendingAcquisitions = new PendingAcquisitions(
    (_, signal) =>
      new Promise((resolve, reject) => {
        takes.push({ signal, finish: resolve });
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      }),
  );
  return { pendingAcquisitions, takes };
}

test("many requests share one acquisition, and one that leaves does not affect the others", async () => {
  const { pendingAcquisitions, takes } = world();
  const leaving = new AbortController();
  const left = pendingAcquisitions.await(id, leaving.signal);
  const stays = pendingAcquisitions.await(id, new AbortController().signal);
  leaving.abort(new Error("the client left"));
  await expect(left).rejects.toThrow("the client left");
  expect(pendingAcquisitions.has(id)).toBe(true);
  takes[0]?.finish();
  await stays;
  expect(takes).toHaveLength(1);
  expect(pendingAcquisitions.has(id)).toBe(false);
});

test("an acquisition is stopped when all have left, and the next request begins another one", async () => {
  const { pendingAcquisitions, takes } = world();
  const leaving = new AbortController();
  const left = pendingAcquisitions.await(id, leaving.signal);
  leaving.abort(new Error("the client left"));
  await expect(left).rejects.toThrow("the client left");
  expect(takes[0]?.signal.aborted).toBe(true);
  const next = pendingAcquisitions.await(id, new AbortController().signal);
  takes[1]?.finish();
  await next;
  expect(takes).toHaveLength(2);
});
