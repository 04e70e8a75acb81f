import type { SandboxEventMessage, SandboxRecord } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RecordKeeper } from "../../src/lifecycle/record-keeper.ts";
import { DataLayout } from "../../src/store/layout.ts";
import { SandboxStore } from "../../src/store/sandbox-store.ts";
import { recordIn } from "../support/sandbox-records.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

type Pausing = SandboxRecord & { state: "pausing" };

const reason = { kind: "asked", message: "enough" } as const;
let directory: TemporaryDirectory;
let store: SandboxStore;
let emitted: SandboxEventMessage[];
const emit = (event: SandboxEventMessage): void => {
  emitted.push(event);
};

beforeEach(() => {
  directory = new TemporaryDirectory();
  store = new SandboxStore(new DataLayout(directory.path));
  emitted = [];
});
afterEach(() => {
  directory[Symbol.dispose]();
});

const stored = async () => (await store.load()).records;

describe("a new sandbox", () => {
  test("its intent is stored, then emitted", async () => {
    const record = recordIn("creating");
    const storedWhenEmitted: Promise<unknown>[] = [];
    const keeper = new RecordKeeper(record, store, (event) => {
      emitted.push(event);
      storedWhenEmitted.push(stored());
    });
    await keeper.begin();
    expect(await stored()).toEqual([record]);
    expect(await Promise.all(storedWhenEmitted)).toEqual([[record]]);
    expect(emitted).toMatchObject([{ type: "state", sandboxId: record.id, from: null, to: "creating" }]);
  });

  test("a sandbox does not begin in a later state", async () => {
    await expect(new RecordKeeper(recordIn("running"), store, emit).begin()).rejects.toThrow(
      "does not begin as running",
    );
    expect(await stored()).toEqual([]);
  });
});

describe("a change", () => {
  test("it is checked, stored, emitted, and then the record", async () => {
    const creating = recordIn("creating");
    const { container } = recordIn("running");
    const keeper = new RecordKeeper(creating, store, emit);
    await keeper.apply("started", (common) => ({ ...common, state: "running", container }));
    expect(keeper.record).toMatchObject({ state: "running", id: creating.id, container });
    expect(await stored()).toEqual([keeper.record]);
    expect(emitted).toMatchObject([{ from: "creating", to: "running" }]);
    expect(emitted[0]).not.toHaveProperty("reason");
  });

  test("what exists in the old state alone is gone with it", async () => {
    const keeper = new RecordKeeper(recordIn("running"), store, emit);
    await keeper.apply("kill", (common) => ({ ...common, state: "killing", reason }));
    expect(keeper.record).not.toHaveProperty("container");
    expect(emitted).toMatchObject([{ to: "killing", reason }]);
  });

  test("one that the table does not know changes nothing", async () => {
    const record = recordIn("paused");
    const keeper = new RecordKeeper(record, store, emit);
    const { container } = recordIn("running");
    await expect(keeper.apply("started", (common) => ({ ...common, state: "running", container }))).rejects.toThrow(
      "No transition: paused + started",
    );
    expect([keeper.record, await stored(), emitted]).toEqual([record, [], []]);
  });

  test("one to another state than the table says changes nothing", async () => {
    const record = recordIn("running");
    const keeper = new RecordKeeper(record, store, emit);
    await expect(keeper.apply("pause", (common) => ({ ...common, state: "paused", checkpoint: 1 }))).rejects.toThrow(
      "running + pause does not lead to paused",
    );
    expect([keeper.record, await stored(), emitted]).toEqual([record, [], []]);
  });

  test("one that cannot be stored has not happened, and the next one can", async () => {
    const record = recordIn("running");
    let isFull = true;
    const failing = {
      save: async (next: typeof record) => {
        if (isFull) throw new Error("no space left");
        await store.save(next);
      },
    };
    // The keeper uses no other method of the store here.
    const keeper = new RecordKeeper(record, failing as unknown as SandboxStore, emit);
    const kill = (): Promise<void> => keeper.apply("kill", (common) => ({ ...common, state: "killing", reason }));
    await expect(kill()).rejects.toThrow("no space left");
    expect([keeper.record, emitted]).toEqual([record, []]);
    isFull = false;
    await kill();
    expect(keeper.record.state).toBe("killing");
  });

  test("an end is in the record before it is stored, so every caller that learns of it finds it there", async () => {
    let stateWhenStored: string | undefined;
    const looking = { save: async () => void (stateWhenStored = keeper.record.state) };
    // The keeper uses no other method of the store here.
    const keeper = new RecordKeeper(recordIn("running"), looking as unknown as SandboxStore, emit);
    await keeper.apply("fault", (common) => ({
      ...common,
      state: "failed",
      reason,
      endedAtMs: 1,
      survives: ["files"],
    }));
    expect(stateWhenStored).toBe("failed");
  });

  const refusing = (code: string): SandboxStore => {
    const save = async (): Promise<void> => {
      throw Object.assign(new Error("no space left"), { code });
    };
    return { save } as unknown as SandboxStore;
  };
  const full = refusing("ENOSPC");

  test.for(["EDQUOT", "EIO", "EROFS"])("an end does not wait for a disk that says %s", async (code) => {
    const keeper = new RecordKeeper(recordIn("running"), refusing(code), emit);
    await keeper.apply("kill", (common) => ({ ...common, state: "killing", reason }));
    expect(keeper.record.state).toBe("killing");
  });

  test.for([
    { what: "an end", record: recordIn("running"), event: "kill", next: { state: "killing", reason } },
    {
      what: "a pause that is refused",
      record: recordIn("pausing"),
      event: "refused",
      next: (pausing: SandboxRecord) => ({ state: "running", container: (pausing as Pausing).container }),
    },
    {
      what: "a resume that is refused",
      record: recordIn("resuming"),
      event: "refused",
      next: { state: "paused", checkpoint: 3 },
    },
  ] as const)("$what does not fail for want of room", async ({ record, event, next }) => {
    const keeper = new RecordKeeper(record, full, emit);
    const parts = typeof next === "function" ? next(record) : next;
    await keeper.apply(event, (common) => ({ ...common, ...parts }) as SandboxRecord);
    expect(keeper.record.state).toBe(parts.state);
    expect(emitted).toMatchObject([{ from: record.state, to: parts.state }]);
  });

  test("a sandbox restored in another container must be stored, or the next server would not find it", async () => {
    const record = recordIn("pausing");
    const keeper = new RecordKeeper(record, full, emit);
    const { container } = recordIn("running");
    await expect(keeper.apply("refused", (common) => ({ ...common, state: "running", container }))).rejects.toThrow(
      "no space left",
    );
    expect([keeper.record, emitted]).toEqual([record, []]);
  });

  test("simultaneous changes are applied one after the other, in order", async () => {
    const keeper = new RecordKeeper(recordIn("running"), store, emit);
    const { container } = recordIn("running");
    const asked = [
      keeper.apply("pause", (common) => ({ ...common, state: "pausing", container, checkpoint: 1 })),
      keeper.apply("checkpointed", (common) => ({ ...common, state: "paused", checkpoint: 1 })),
      keeper.apply("pause", (common) => ({ ...common, state: "pausing", container, checkpoint: 1 })),
      keeper.apply("kill", (common) => ({ ...common, state: "killing", reason })),
      keeper.forget(reason),
    ];
    const results = await Promise.allSettled(asked);
    expect(results.map(({ status }) => status)).toEqual([
      "fulfilled",
      "fulfilled",
      "rejected",
      "fulfilled",
      "fulfilled",
    ]);
    expect(emitted.map((event) => event.type === "state" && event.to)).toEqual([
      "pausing",
      "paused",
      "killing",
      "killed",
    ]);
  });
});

describe("the end", () => {
  test("nothing is stored any more, and the event has the reason", async () => {
    const record = recordIn("killing");
    await store.save(record);
    const keeper = new RecordKeeper(record, store, emit);
    await keeper.forget(reason);
    expect(await store.load()).toEqual({ records: [], unreadable: [], ownerless: [] });
    expect(keeper.record).toMatchObject({ state: "killed", reason });
    expect(emitted).toMatchObject([{ from: "killing", to: "killed", reason }]);
  });

  test("what is not being killed cannot be forgotten", async () => {
    const record = recordIn("running");
    await store.save(record);
    await expect(new RecordKeeper(record, store, emit).forget(reason)).rejects.toThrow(
      "No transition: running + removed",
    );
    expect(await stored()).toEqual([record]);
  });
});
