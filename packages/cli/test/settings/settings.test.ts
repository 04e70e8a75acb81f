import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readEnvironment } from "../../src/environment.ts";
import { readCredentials, writeCredentials } from "../../src/settings/credentials.ts";
import { readSettings } from "../../src/settings/settings.ts";

let home: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "atoll-settings-"));
});
afterEach(async () => {
  await rm(home, { recursive: true, force: true });
});

test("flags win over the environment, the environment over the file, and the file over the default", async () => {
  const path = join(home, "atoll", "credentials.json");
  await writeCredentials(path, { key: "stored" });
  const read = (flags: object, variables: object) =>
    readSettings(flags, readEnvironment({ XDG_CONFIG_HOME: home, ...variables }));
  expect(await read({}, {})).toEqual({
    url: { value: "http://127.0.0.1:4600", source: "default" },
    key: { value: "stored", source: "file" },
  });
  expect((await read({}, { ATOLL_API_KEY: "variable" })).key).toEqual({ value: "variable", source: "environment" });
  expect((await read({ key: "flag" }, { ATOLL_API_KEY: "variable" })).key).toEqual({ value: "flag", source: "flag" });
  expect((await read({}, { ATOLL_API_KEY: "" })).key.source).toBe("file");
});

test("only the owner can read a stored file, even if it was readable for all", async () => {
  const path = join(home, "credentials.json");
  await writeFile(path, "{}", { mode: 0o644 });
  await writeCredentials(path, { url: "http://there" });
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  expect(JSON.parse(await readFile(path, "utf8"))).toEqual({ url: "http://there" });
});

test("the error for a damaged file has its path and a suggestion", async () => {
  const path = join(home, "credentials.json");
  await writeFile(path, "{");
  await expect(readCredentials(path)).rejects.toThrow(`Cannot read ${path}: it is not JSON`);
  await writeFile(path, '{"key": 5}');
  await expect(readCredentials(path)).rejects.toThrow("key is not a string");
});
