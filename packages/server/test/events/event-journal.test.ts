import { appendFile, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxId, type ApiEvent } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createForOwner } from "../../src/events/acting-principal.ts";
import { EventJournal, type FollowEvents, type JournalOptions } from "../../src/events/event-journal.ts";

let dir: string;
let journal: EventJournal;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-events-"));
  journal = EventJournal.open(dir);
});
afterEach(async () => {
  journal.close();
  await rm(dir, { recursive: true, force: true });
});

const one = SandboxId.parse("a".repeat(20));
const two = SandboxId.parse("b".repeat(20));
const three = SandboxId.parse("c".repeat(20));

function happen(sandboxId = one): ApiEvent {
  return journal.append({ type: "egress.refused", sandboxId, host: "example.com", port: 443, because: "not allowed" });
}

function reopen(options: JournalOptions = {}): void {
  journal.close();
  journal = EventJournal.open(dir, options);
}

/** Returns the next events of a follower; it does not wait for more than there are. */
async function take(count: number, options: Omit<FollowEvents, "signal"> = {}): Promise<ApiEvent[]> {
  const events: ApiEvent[] = [];
  const { signal } = new AbortController();
  for await (const event of journal.follow({ ...options, signal })) {
    events.push(event);
    if (events.length === count) break;
  }
  return events;
}

/** Returns the files with events in them. */
async function files(): Promise<string[]> {
  return (await readdir(dir)).filter((name) => name.endsWith(".jsonl"));
}

const cursors = (events: ApiEvent[]): number[] => events.map(({ cursor }) => cursor);

describe("a follower", () => {
  test("gets everything after its cursor, in order", async () => {
    for (let index = 0; index < 5; index += 1) happen();
    expect(cursors(await take(5, { cursor: 0 }))).toEqual([1, 2, 3, 4, 5]);
    expect(cursors(await take(2, { cursor: 3 }))).toEqual([4, 5]);
  });

  test("without a cursor gets only new events", async () => {
    happen();
    const next = take(1);
    happen();
    expect(cursors(await next)).toEqual([2]);
  });

  test("of one sandbox gets only its events", async () => {
    happen(one);
    happen(two);
    happen(one);
    expect(cursors(await take(2, { cursor: 0, sandboxId: one }))).toEqual([1, 3]);
  });

  test("misses nothing when it returns, however often", async () => {
    const seen: number[] = [];
    for (let round = 0; round < 20; round += 1) {
      happen();
      happen();
      const [event] = await take(1, { cursor: seen.at(-1) ?? 0 });
      seen.push(event?.cursor ?? 0);
    }
    expect(seen).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
  });

  test("gets the cursor where it begins, and its cursor among events that are not for it", async () => {
    happen();
    const steps = journal.steps({ sandboxId: two, signal: AbortSignal.timeout(60_000) });
    expect((await steps.next()).value).toEqual({ type: "passed", cursor: 1 });
    for (let index = 0; index < 150; index += 1) happen(one);
    expect((await steps.next()).value).toEqual({ type: "passed", cursor: 101 });
    happen(two);
    expect((await steps.next()).value).toMatchObject({ cursor: 152, sandboxId: two });
    await steps.return();
  });

  test("that begins with lost events gets nothing before them", async () => {
    happen();
    const steps = journal.steps({ cursor: 9, signal: AbortSignal.timeout(60_000) });
    expect((await steps.next()).value).toMatchObject({ type: "events.lost", cursor: 1 });
    await steps.return();
  });

  test("ends when its signal aborts", async () => {
    const leave = new AbortController();
    const waiting = journal.follow({ signal: leave.signal }).next();
    leave.abort(new Error("left"));
    await expect(waiting).rejects.toThrow("left");
  });
});

describe("the next server", () => {
  test("continues the numbers of the last one", async () => {
    happen();
    happen();
    reopen();
    expect(happen().cursor).toBe(3);
    expect(cursors(await take(3, { cursor: 0 }))).toEqual([1, 2, 3]);
  });

  test("drops half a line, which no client received", async () => {
    happen();
    const [name] = await files();
    journal.close();
    await appendFile(join(dir, name ?? ""), '{"cursor":2,"type":"egr');
    reopen();
    expect(happen().cursor).toBe(2);
    expect(await take(2, { cursor: 0 })).toMatchObject([{ cursor: 1 }, { cursor: 2, type: "egress.refused" }]);
  });

  test("continues the numbers of one that was killed", async () => {
    happen();
    const next = EventJournal.open(dir);
    expect(next.append({ type: "checkpoint.removed", sandboxId: one, checkpoint: 1 }).cursor).toBe(2);
    next.close();
  });

  test("reports lost events to a follower that is ahead of it", async () => {
    happen();
    expect(await take(1, { cursor: 99 })).toMatchObject([{ type: "events.lost", before: 2 }]);
  });
});

describe("on a machine that was restarted", () => {
  /**
   * Makes the disk as it is after a loss of power: the journal was not closed, and its last events are not on the disk.
   */
  async function losePower(keptEvents: number, boot: string): Promise<void> {
    const name = (await files()).at(-1) ?? "";
    const lines = (await readFile(join(dir, name), "utf8")).split("\n");
    const reserved = await readFile(join(dir, "reserved-cursors"));
    journal.close();
    await writeFile(join(dir, "reserved-cursors"), reserved);
    await writeFile(
      join(dir, name),
      lines
        .slice(0, keptEvents)
        .map((line) => `${line}\n`)
        .join(""),
    );
    journal = EventJournal.open(dir, { boot });
  }

  test("no cursor is given again, and a follower that returns learns of the loss", async () => {
    reopen({ boot: "first" });
    for (let index = 0; index < 5; index += 1) happen();
    await losePower(2, "second");
    // The follower returns before anything happens, and also only after as many events as before.
    const { cursor: start } = journal;
    expect(await take(1, { cursor: 5 })).toMatchObject([{ type: "events.lost", before: start + 1 }]);
    expect(start).toBeGreaterThan(5);
    for (let index = 0; index < 5; index += 1) happen();
    const later = { type: "egress.refused", cursor: start + 1 };
    expect(await take(2, { cursor: 4 })).toMatchObject([{ type: "events.lost", before: start + 1 }, later]);
    expect(await take(4, { cursor: 0 })).toMatchObject([{ cursor: 1 }, { cursor: 2 }, { type: "events.lost" }, later]);
  });

  test("no cursor is given again by the server after the next one, though nothing happened in between", async () => {
    reopen({ boot: "first" });
    for (let index = 0; index < 5; index += 1) happen();
    await losePower(2, "second");
    const { cursor } = journal;
    await losePower(2, "second");
    expect(happen().cursor).toBe(cursor + 1);
    await losePower(3, "third");
    expect(happen().cursor).toBeGreaterThan(cursor + 1);
  });

  test("nothing is reported as lost if the journal was closed", async () => {
    reopen({ boot: "first" });
    happen();
    reopen({ boot: "second" });
    reopen({ boot: "third" });
    happen();
    expect(cursors(await take(2, { cursor: 0 }))).toEqual([1, 2]);
  });

  test("a journal that reserved nothing is read as it is", async () => {
    happen();
    journal.close();
    await rm(join(dir, "reserved-cursors"));
    journal = EventJournal.open(dir, { boot: "second" });
    expect(happen().cursor).toBe(2);
  });
});

describe("the owner of a sandbox", () => {
  const owners = new Map([
    [one, "key one"],
    [two, "key two"],
  ]);
  const sees = (_: ApiEvent, owner: string | undefined): boolean => owner === "key one";

  test("is determined when an event happens, also for the next server, and is not sent to clients", async () => {
    reopen({ ownerOf: (id) => owners.get(id) });
    happen(one);
    happen(two);
    const [live] = await take(1, { cursor: 0, sees });
    reopen();
    const [later] = await take(1, { cursor: 0, sees });
    expect(live).toEqual(later);
    expect(later).toEqual({ ...later, cursor: 1, sandboxId: one });
    expect(JSON.stringify([live, later])).not.toContain("key one");
  });

  test("is known also for a sandbox that is gone, and for one that is being created", async () => {
    const known = new Map(owners);
    reopen({ ownerOf: (id) => known.get(id) });
    happen(one);
    known.clear();
    happen(one);
    await createForOwner("key one", async () => happen(three));
    reopen();
    happen(one);
    expect(cursors(await take(4, { cursor: 0, sees }))).toEqual([1, 2, 3, 4]);
  });

  test("may be missing in a line", async () => {
    happen(one);
    const seen: unknown[] = [];
    await take(1, { cursor: 0, sees: (_, owner) => seen.push(owner) > 0 });
    expect(seen).toEqual([undefined]);
  });
});

describe("an event that cannot be stored", () => {
  const late = { type: "egress.refused", sandboxId: one, host: "late", port: 1, because: "no" } as const;

  test("leaves a gap, which followers see at once and later, also with the next server", async () => {
    const failed: string[] = [];
    reopen({ segmentBytes: 1, onError: (_, { type }) => failed.push(type) });
    happen();
    const live = journal.follow({ cursor: 1, signal: AbortSignal.timeout(60_000) });
    const next = live.next();
    const aside = `${dir}-aside`;
    await rename(dir, aside);
    journal.emit(late);
    journal.emit(late);
    await rename(aside, dir);
    expect(failed).toEqual(["egress.refused", "egress.refused"]);
    expect((await next).value).toMatchObject({ type: "events.lost", before: 4 });
    happen();
    expect((await live.next()).value).toMatchObject({ cursor: 4 });
    const everything = [{ cursor: 1 }, { type: "events.lost", before: 4 }, { cursor: 4 }];
    expect(await take(3, { cursor: 0 })).toMatchObject(everything);
    reopen({ segmentBytes: 1 });
    expect(await take(3, { cursor: 0 })).toMatchObject(everything);
    await live.return();
  });

  test("has a cursor that no other event gets, also when the next server starts before another is stored", async () => {
    reopen({ segmentBytes: 1 });
    happen();
    const aside = `${dir}-aside`;
    await rename(dir, aside);
    journal.emit(late);
    journal.emit(late);
    await rename(aside, dir);
    reopen();
    reopen();
    expect(journal.cursor).toBe(3);
    expect(happen().cursor).toBe(4);
    expect(happen().cursor).toBe(5);
    const everything = [{ cursor: 1 }, { type: "events.lost", before: 4 }, { cursor: 4 }, { cursor: 5 }];
    expect(await take(4, { cursor: 0 })).toMatchObject(everything);
    reopen();
    expect(await take(4, { cursor: 0 })).toMatchObject(everything);
    expect(cursors(await take(1, { cursor: 4 }))).toEqual([5]);
  });

  test("keeps its cursor also if it was the first", async () => {
    const aside = `${dir}-aside`;
    await rename(dir, aside);
    journal.emit(late);
    await rename(aside, dir);
    reopen();
    expect(happen().cursor).toBe(2);
  });
});

describe("the stored events", () => {
  test("in memory are bounded by bytes too, and lines of any length are read from the files", async () => {
    reopen({ recentBytes: 1_000 });
    const long = "x".repeat(200_000);
    for (const host of ["a", long, "b", long, "c"]) {
      journal.append({ type: "egress.allowed", sandboxId: one, host, port: 1 });
    }
    const read = async (): Promise<unknown[]> =>
      (await take(5, { cursor: 0 })).map((event) => ("host" in event ? event.host : event.type));
    expect(await read()).toEqual(["a", long, "b", long, "c"]);
    reopen({ recentBytes: 1_000 });
    expect(await read()).toEqual(["a", long, "b", long, "c"]);
  });

  test("reach a follower that stops while more happen in order, from memory, files and memory again", async () => {
    reopen({ segmentBytes: 2_000, segments: 100, recentEvents: 5 });
    const seen: number[] = [];
    happen();
    for await (const { cursor } of journal.follow({ cursor: 0, signal: AbortSignal.timeout(60_000) })) {
      seen.push(cursor);
      if (cursor === 200) break;
      // Some events are far ahead of the follower.
      for (let count = cursor % 10 === 1 ? 20 : 0; count > 0 && journal.cursor < 200; count -= 1) happen();
    }
    expect(seen).toEqual(Array.from({ length: 200 }, (_, index) => index + 1));
  });

  test("are bounded, and a follower from before that gets events.lost", async () => {
    reopen({ segmentBytes: 1_000, segments: 3, recentEvents: 4 });
    for (let index = 0; index < 100; index += 1) happen();
    expect(await files()).toHaveLength(3);
    const [lost, ...rest] = await take(5, { cursor: 10 });
    expect(lost).toMatchObject({ type: "events.lost" });
    const before = lost?.type === "events.lost" ? lost.before : 0;
    expect(before).toBeGreaterThan(11);
    expect(cursors(rest)).toEqual([before, before + 1, before + 2, before + 3]);
  });

  test("are read across files, and from memory where they are new", async () => {
    reopen({ segmentBytes: 1_000, segments: 100, recentEvents: 4 });
    for (let index = 0; index < 50; index += 1) happen();
    expect(cursors(await take(50, { cursor: 0 }))).toEqual(Array.from({ length: 50 }, (_, index) => index + 1));
    reopen({ segmentBytes: 1_000, segments: 100, recentEvents: 4 });
    expect(happen().cursor).toBe(51);
    expect(cursors(await take(51, { cursor: 0 }))).toHaveLength(51);
  });
});
