import { existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { sandboxStates } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { DataLayout } from "../../src/store/layout.ts";
import { SandboxStore } from "../../src/store/sandbox-store.ts";
import { newSandboxId } from "../../src/support/ids.ts";
import { recordIn } from "../support/sandbox-records.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

let directory: TemporaryDirectory;
let layout: DataLayout;
let store: SandboxStore;

beforeEach(() => {
  directory = new TemporaryDirectory();
  layout = new DataLayout(directory.path);
  store = new SandboxStore(layout);
});
afterEach(() => {
  directory[Symbol.dispose]();
});

test("an empty data directory has nothing in it", async () => {
  expect(await store.load()).toEqual({ records: [], unreadable: [], ownerless: [] });
});

test.for(sandboxStates)("a record that is %s is read as it was saved", async (state) => {
  const record = recordIn(state);
  await store.save(record);
  expect(await store.load()).toEqual({ records: [record], unreadable: [], ownerless: [] });
});

test("the last record saved counts", async () => {
  const first = recordIn("running");
  const second = recordIn("failed", first.id);
  await store.save(first);
  await store.save(second);
  expect((await store.load()).records).toEqual([second]);
});

test("no other user can read a sandbox's directory", async () => {
  const record = recordIn("running");
  await store.save(record);
  expect(statSync(layout.sandbox(record.id).dir).mode & 0o077).toBe(0);
  expect(statSync(layout.sandboxesDir).mode & 0o077).toBe(0);
});

test("removing takes everything, and may be done twice", async () => {
  const record = recordIn("running");
  await store.save(record);
  mkdirSync(layout.sandbox(record.id).layer(0).upper, { recursive: true });
  await store.remove(record.id);
  await store.remove(record.id);
  expect(existsSync(layout.sandbox(record.id).dir)).toBe(false);
});

describe("a directory whose record cannot be used", () => {
  async function unreadable(name: string, record: string): Promise<string> {
    mkdirSync(`${layout.sandboxesDir}/${name}`, { recursive: true });
    writeFileSync(`${layout.sandboxesDir}/${name}/record.json`, record);
    const good = recordIn("running");
    await store.save(good);
    const found = await store.load();
    expect(found.records).toEqual([good]);
    expect(found.ownerless).toEqual([]);
    expect(found.unreadable).toMatchObject([{ dir: `${layout.sandboxesDir}/${name}` }]);
    expect(existsSync(`${layout.sandboxesDir}/${name}/record.json`)).toBe(true);
    return found.unreadable[0]?.because ?? "";
  }
  const id = newSandboxId();

  test.for([
    { what: "half a record", text: '{"version": 1, "id": ' },
    { what: "no text at all", text: "" },
    { what: "a list", text: "[]" },
    { what: "a record of another version", text: JSON.stringify({ ...recordIn("running", id), version: 2 }) },
    { what: "a record in an unknown state", text: JSON.stringify({ ...recordIn("running", id), state: "dreaming" }) },
    {
      what: "a record without its container",
      text: JSON.stringify({ ...recordIn("running", id), container: undefined }),
    },
    {
      what: "a record with an unknown field",
      text: JSON.stringify({ ...recordIn("running", id), colour: "red" }),
    },
  ])("$what is reported and stays", async ({ text }) => {
    expect(await unreadable(id, text)).not.toBe("");
  });

  test("another sandbox's record is reported by its name", async () => {
    const other = recordIn("running");
    expect(await unreadable(id, JSON.stringify(other))).toContain(other.id);
  });

  test("a name that is no id is reported and stays", async () => {
    expect(await unreadable("lost+found", JSON.stringify(recordIn("running")))).toContain("no sandbox id");
  });
});

describe("a directory without a record", () => {
  test("it has no owner", async () => {
    const id = newSandboxId();
    mkdirSync(layout.sandbox(id).layersDir, { recursive: true });
    expect(await store.load()).toEqual({ records: [], unreadable: [], ownerless: [id] });
  });

  test("one whose first record was never finished has none either", async () => {
    const id = newSandboxId();
    mkdirSync(layout.sandbox(id).dir, { recursive: true });
    writeFileSync(`${layout.sandbox(id).recordFile}.new`, '{"version": 1');
    expect((await store.load()).ownerless).toEqual([id]);
  });
});
