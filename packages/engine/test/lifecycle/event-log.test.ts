import type { SandboxEventMessage } from "@atoll/protocol";
import { expect, test, vi } from "vitest";
import { EventLog } from "../../src/lifecycle/event-log.ts";
import { newSandboxId } from "../../src/support/ids.ts";

const sandboxId = newSandboxId();
const eventAt = (atMs: number): SandboxEventMessage => ({ type: "state", sandboxId, atMs, from: null, to: "creating" });

test("listeners get later events, in order", () => {
  const log = new EventLog();
  const heard: number[] = [];
  log.emit(eventAt(1));
  log.listen(({ atMs }) => heard.push(atMs));
  log.emit(eventAt(2));
  log.emit(eventAt(3));
  expect(heard).toEqual([2, 3]);
});

test("a listener that was removed gets no more events", () => {
  const log = new EventLog();
  const heard: number[] = [];
  const stop = log.listen(({ atMs }) => heard.push(atMs));
  stop();
  stop();
  log.emit(eventAt(1));
  expect(heard).toEqual([]);
});

test("a listener that throws does not stop the others, and its error is logged", async () => {
  const log = new EventLog();
  const heard: number[] = [];
  const warned = new Promise<Error>((resolve) => process.once("warning", resolve));
  const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  log.listen(() => {
    throw new Error("broken listener");
  });
  log.listen(({ atMs }) => heard.push(atMs));
  log.emit(eventAt(1));
  expect(heard).toEqual([1]);
  expect((await warned).message).toBe("broken listener");
  write.mockRestore();
});

test("a listener that is removed during an event does not affect the others", () => {
  const log = new EventLog();
  const heard: string[] = [];
  const stop = log.listen(() => {
    heard.push("first");
    stop();
  });
  log.listen(() => heard.push("second"));
  log.emit(eventAt(1));
  log.emit(eventAt(2));
  expect(heard).toEqual(["first", "second", "second"]);
});

test("the last thousand or so are kept, and no more", () => {
  const log = new EventLog();
  for (let atMs = 0; atMs < 5000; atMs += 1) log.emit(eventAt(atMs));
  expect(log.recent.length).toBe(1024);
  expect(log.recent.at(-1)?.atMs).toBe(4999);
});
