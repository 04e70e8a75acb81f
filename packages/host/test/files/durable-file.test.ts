import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { writeDurably } from "../../src/files/durable-file.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

test("the file is readable by its owner alone, and no other file is left", async () => {
  using directory = new TemporaryDirectory();
  await writeDurably(directory.join("record.json"), "one");
  expect(readFileSync(directory.join("record.json"), "utf8")).toBe("one");
  expect(statSync(directory.join("record.json")).mode & 0o777).toBe(0o600);
  expect(readdirSync(directory.path)).toEqual(["record.json"]);
});

test("a reader sees the complete old or new content while a file is replaced", async () => {
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

test("the leftover of a crash is replaced, also when it is longer", async () => {
  using directory = new TemporaryDirectory();
  writeFileSync(directory.join("record.json.new"), "half of something long");
  await writeDurably(directory.join("record.json"), "two");
  expect(readFileSync(directory.join("record.json"), "utf8")).toBe("two");
  expect(readdirSync(directory.path)).toEqual(["record.json"]);
});

test("a missing directory is an error, and no file is made", async () => {
  using directory = new TemporaryDirectory();
  await expect(writeDurably(directory.join("none", "record.json"), "x")).rejects.toMatchObject({ code: "ENOENT" });
});
