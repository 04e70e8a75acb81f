import { isSandboxError, type ErrorCode } from "@atoll/protocol";
import { afterEach, beforeEach, expect } from "vitest";
import type { ObjectStore, ObjectVersion } from "../../../src/index.ts";
import type { OpenPlace, StorePlace } from "../store-contract.ts";

/** Opens a new place for each test. */
export function usePlace(open: OpenPlace): { place: StorePlace; store: ObjectStore } {
  const used: { place?: StorePlace } = {};
  beforeEach(async () => {
    used.place = await open();
  });
  afterEach(async () => {
    await used.place?.close();
    delete used.place;
  });
  return {
    get place() {
      if (used.place === undefined) throw new Error("There is a place only while a test runs");
      return used.place;
    },
    get store() {
      return this.place.store;
    },
  };
}

export const text = (content: string): Buffer => Buffer.from(content);

export const noSuchVersion = "0000000000000000" as ObjectVersion;

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

export async function readAll(chunks: AsyncIterable<Buffer>): Promise<Buffer> {
  return Buffer.concat(await collect(chunks));
}

export async function expectCode(attempt: Promise<unknown>, code: ErrorCode): Promise<void> {
  await expect(attempt).rejects.toMatchObject({ code });
}

/** Splits the results of a race into winners and those that got a conflict; any other error fails the test. */
export async function race<T>(attempts: readonly Promise<T>[]): Promise<{ won: T[]; lost: number }> {
  const outcomes = await Promise.allSettled(attempts);
  const won = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
  const refused = outcomes.flatMap((outcome): unknown[] => (outcome.status === "rejected" ? [outcome.reason] : []));
  const strange = refused.filter((reason) => !isSandboxError(reason, "conflict"));
  expect(strange).toEqual([]);
  return { won, lost: refused.length };
}
