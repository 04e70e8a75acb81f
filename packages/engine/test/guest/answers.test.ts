import { expect, test } from "vitest";
import { Answers } from "../../src/guest/answers.ts";

const never = new AbortController().signal;

test("each answer reaches its request", async () => {
  const answers = new Answers();
  const first = answers.expect(1, never);
  const second = answers.expect(2, never);
  answers.resolve(2, { type: "done", id: 2 });
  answers.resolve(1, { type: "ready", id: 1 });
  expect(await first).toEqual({ type: "ready", id: 1 });
  expect(await second).toEqual({ type: "done", id: 2 });
});

test("an error reaches its request", async () => {
  const answers = new Answers();
  const asked = answers.expect(1, never);
  answers.reject(1, new Error("no"));
  await expect(asked).rejects.toThrow("no");
});

test("an abort rejects with its own reason, and what comes later is dropped", async () => {
  const answers = new Answers();
  const controller = new AbortController();
  const asked = answers.expect(1, controller.signal);
  const reason = new Error("no longer wanted");
  controller.abort(reason);
  await expect(asked).rejects.toBe(reason);
  answers.resolve(1, { type: "done", id: 1 });
  answers.reject(1, new Error("no request waits for this"));
});

test("a request with an aborted signal is refused at once", async () => {
  const reason = new Error("too late");
  await expect(new Answers().expect(1, AbortSignal.abort(reason))).rejects.toBe(reason);
});

test("an answer without a request is dropped", () => {
  const answers = new Answers();
  expect(() => {
    answers.resolve(9, { type: "done", id: 9 });
    answers.reject(9, new Error("no"));
  }).not.toThrow();
});

test("the end reaches every waiting request once", async () => {
  const answers = new Answers();
  const asked = [answers.expect(1, never), answers.expect(2, never)].map((answer) =>
    answer.catch((error: unknown) => error),
  );
  const end = new Error("the sandbox has ended");
  answers.rejectAll(end);
  answers.rejectAll(new Error("again"));
  expect(await Promise.all(asked)).toEqual([end, end]);
});
