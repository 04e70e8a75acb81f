import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { checkedId, readAppConfig } from "../../src/manager/app-folder.ts";

const folder = mkdtempSync(join(tmpdir(), "atoll-config-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const write = (text: string): void => writeFileSync(join(folder, "live.json"), text);

test("options come before the file, and the file before the defaults, limit by limit", async () => {
  write(`{ "limits": { "cpus": 2, "processes": 7 }, "debounceMs": 5 }`);
  expect(await readAppConfig(folder, { limits: { cpus: 1 } })).toMatchObject({
    debounceMs: 5,
    entry: "src/app.ts",
    limits: { cpus: 1, processes: 7, unresponsiveMs: 5_000 },
  });
});

test.for<[string, string]>([
  ['{\n  "entry": "src/app.ts",\n  "limits": {\n    "cpus": "two"\n  }\n}', "live.json:4: limits.cpus"],
  ['{\n  "entry": "src/app.ts",\n\n  "isolatoin": "gvisor"\n}', "live.json:4: isolatoin"],
  ['{\n  "ports": [80, 99999]\n}', "live.json:2: ports.1"],
  ["[]", "live.json:1: the file"],
  ['{\n  "entry": "src/app.ts"\n  "ports": []\n}', "live.json:3:3: it is no JSON"],
  ["", "live.json:1:1: it is no JSON"],
])("%j is refused with its place: %s", async ([text, expected]) => {
  write(text);
  await expect(readAppConfig(folder, {})).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining(expected),
    suggestion: expect.stringContaining("Correct the"),
  });
});

test("a folder that is not there, and options that are wrong, are refused by name", async () => {
  rmSync(join(folder, "live.json"), { force: true });
  await expect(readAppConfig(join(folder, "none"), {})).rejects.toMatchObject({ code: "not_found" });
  await expect(readAppConfig(folder, { debounceMs: -1 })).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining("debounceMs"),
  });
});

test.for(["", "../../home", "A", "x/y", "-x", "x".repeat(65), "x\0"])("%j is no id", (id) => {
  expect(() => checkedId(id)).toThrow("as the id of an app");
});
