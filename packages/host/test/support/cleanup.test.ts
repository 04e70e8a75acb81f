import { expect, test } from "vitest";
import { Cleanup } from "../../src/support/cleanup.ts";

test("steps run in reverse at the end of the block", async () => {
  const ran: number[] = [];
  {
    await using undo = new Cleanup();
    undo.defer(() => ran.push(1));
    undo.defer(async () => {
      await Promise.resolve();
      ran.push(2);
    });
    expect(ran).toEqual([]);
  }
  expect(ran).toEqual([2, 1]);
});

test("steps run when the block is left by an error", async () => {
  const ran: number[] = [];
  const work = async (): Promise<void> => {
    await using undo = new Cleanup();
    undo.defer(() => ran.push(1));
    throw new Error("broken");
  };
  await expect(work()).rejects.toThrow("broken");
  expect(ran).toEqual([1]);
});

test("released steps do not run", async () => {
  const ran: number[] = [];
  {
    await using undo = new Cleanup();
    undo.defer(() => ran.push(1));
    undo.release();
  }
  expect(ran).toEqual([]);
});

test("a step that fails keeps no other from running, and its error is thrown", async () => {
  const ran: number[] = [];
  const undo = new Cleanup();
  undo.defer(() => ran.push(1));
  undo.defer(() => {
    throw new Error("second");
  });
  undo.defer(() => ran.push(3));
  await expect(undo.run()).rejects.toThrow("second");
  expect(ran).toEqual([3, 1]);
});

test("several errors are thrown together", async () => {
  const undo = new Cleanup();
  for (const message of ["first", "second"]) {
    undo.defer(() => {
      throw new Error(message);
    });
  }
  const error: unknown = await undo.run().catch((error: unknown) => error);
  expect(error instanceof AggregateError && error.errors).toEqual([new Error("second"), new Error("first")]);
});

test("no step runs twice", async () => {
  let runs = 0;
  const undo = new Cleanup();
  undo.defer(() => {
    runs += 1;
  });
  await undo.run();
  await undo.run();
  expect(runs).toBe(1);
});
