import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { writeDurably } from "../../src/files/durable-file.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

test("a file is made, readable by its owner alone, and nothing else is left", async () => {
  using directory = new TemporaryDirectory();
  await writeDurably(directory.join("record.json"), "one");
  expect(readFileSync(directory.join("record.json"), "utf8")).toBe("one");
  expect(statSync(directory.join("record.json")).mode & 0o777).toBe(0o600);
  expect(readdirSync(directory.path)).toEqual(["record.json"]);
});

test("whoever looks while it is replaced sees the old content or the new, whole", async () => {
  using directory = new TemporaryDirectory();
  const path = directory.join("record.json");
  const contents = ["a", "b"].map((letter) => letter.repeat(1_000_000));
  await writeDurably(path, contents[0] ?? "");
  const seen = new Set<string>();
  const done = new AbortController();
  const replaced = (async () => {
    for (let round = 1; round < 6; round += 1) await writeDurably(path, contents[round % 2] ?? "");
    done.abort();
  })();
  while (!done.signal.aborted) {
    seen.add(readFileSync(path, "utf8"));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await replaced;
  expect([...seen].every((content) => contents.includes(content))).toBe(true);
});

test("what a crash left behind is replaced, also when it was longer", async () => {
  using directory = new TemporaryDirectory();
  writeFileSync(directory.join("record.json.new"), "half of something long");
  await writeDurably(directory.join("record.json"), "two");
  expect(readFileSync(directory.join("record.json"), "utf8")).toBe("two");
  expect(readdirSync(directory.path)).toEqual(["record.json"]);
});

test("a directory that is not there is an error, and the file is not there either", async () => {
  using directory = new TemporaryDirectory();
  await expect(writeDurably(directory.join("none", "record.json"), "x")).rejects.toMatchObject({ code: "ENOENT" });
});
