import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandboxError } from "@atoll/protocol";
import { afterAll, describe, expect, test } from "vitest";
import { findJsonError } from "../../src/formats/json-error.ts";
import { readTask } from "../../src/formats/task-file.ts";

const directory = mkdtempSync(join(tmpdir(), "atoll-formats-"));
afterAll(() => rmSync(directory, { recursive: true }));

/** What reading a task of this text says, without the directory. */
async function refusal(name: string, text: string): Promise<string> {
  const path = join(directory, name);
  writeFileSync(path, text);
  const error: unknown = await readTask(path).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!isSandboxError(error)) throw new Error("the task was not refused", { cause: error });
  expect(error.suggestion).toBeTruthy();
  return error.message.replaceAll(`${directory}/`, "");
}

describe("a mistake in a task file is reported with its place", () => {
  test.for([
    [
      "YAML, a wrong type",
      "a.yaml",
      "test: make\nsandbox:\n  limits:\n    cpus: two\n",
      'Cannot read a.yaml:4:5: sandbox.limits.cpus: expected a number, but it is "two"',
    ],
    [
      "JSON, a wrong type",
      "a.json",
      '{\n  "test": "make",\n  "setup": "npm ci"\n}',
      'Cannot read a.json:3:3: setup: expected a list, but it is "npm ci"',
    ],
    [
      "a field that is missing",
      "b.yaml",
      "id: a\n",
      "Cannot read b.yaml:1:1: test: expected a text or a list, but it is missing",
    ],
    [
      "a field that there is not",
      "c.yaml",
      "test: make\nrepo:\n  path: .\n  brnch: main\n",
      "Cannot read c.yaml:4:3: repo.brnch: there is no such field",
    ],
    [
      "a value of a list",
      "d.yaml",
      "test: make\nparser: pytes\n",
      "Cannot read d.yaml:2:1: parser: expected one of auto, ",
    ],
    [
      "an item of a list",
      "e.yaml",
      "test: make\nfailToPass:\n  - a\n  - 7\n",
      "Cannot read e.yaml:4:5: failToPass[1]: expected a text, but it is 7",
    ],
    [
      "a bound",
      "f.json",
      '{"test": "make", "sandbox": {"limits": {"processes": 1}}}',
      "Cannot read f.json:1:41: sandbox.limits.processes: expected at least 8, but it is 1",
    ],
    [
      "a path that is not absolute",
      "g.yaml",
      "test: make\nsandbox: { workdir: here }\n",
      'sandbox.workdir: expected an absolute path, but it is "here"',
    ],
    [
      "a rule for several fields",
      "h.yaml",
      "test: make\nrepo: { url: a, path: b }\n",
      "repo: expected exactly one of url, path and mirror says where the repository is, but it is a map",
    ],
    ["YAML that is none", "i.yaml", "test: [make\nid: a\n", "Cannot read i.yaml:2:"],
    ["a key that is there twice", "j.yaml", "test: a\ntest: b\n", "Cannot read j.yaml:2:1: Map keys must be unique"],
    [
      "JSON that is none",
      "k.json",
      '{\n  "test": "make",\n}',
      'Cannot read k.json:3:1: expected a name in double quotes, but there is "}"',
    ],
    [
      "JSON that was cut off",
      "l.json",
      '{"test": "make"',
      "Cannot read l.json:1:16: expected a comma or }, but the text ends",
    ],
    [
      "a document that is no map",
      "m.yaml",
      "- a\n",
      "Cannot read m.yaml:1:1: the document: expected a map, but it is a list",
    ],
  ])("%s", async ([, name = "", text = "", message = ""]) => {
    expect(await refusal(name, text)).toContain(message);
  });

  test("several mistakes are reported together", async () => {
    const message = await refusal("many.yaml", "test: make\nid: '*'\nparser: x\n");
    expect(message).toMatch(/^Cannot read many\.yaml:2:1: id: expected [^]+\n {2}and many\.yaml:3:1: parser: /);
  });

  test("a file that is not there, and one of another kind", async () => {
    await expect(readTask(join(directory, "none.yaml"))).rejects.toMatchObject({ code: "not_found" });
    expect(await refusal("task.ini", "")).toContain("its name ends with neither .yaml nor .json");
  });

  test("aliases that multiply are refused", async () => {
    const levels = Array.from(
      { length: 9 },
      (_, index) => `a${index + 1}: &a${index + 1} [${`*a${index}, `.repeat(9)}]`,
    );
    const path = join(directory, "bomb.yaml");
    writeFileSync(path, `a0: &a0 [x]\n${levels.join("\n")}\ntest: make\n`);
    await expect(readTask(path)).rejects.toThrow(/alias/i);
  });
});

describe("a task file", () => {
  test("has paths relative to itself", async () => {
    const patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\r\n";
    writeFileSync(join(directory, "tests.patch"), patch);
    writeFileSync(
      join(directory, "task.yaml"),
      "test: [make, test]\ntestPatch: tests.patch\nrepo: { path: project, patches: [tests.patch], ref: v1 }\n",
    );
    expect(await readTask(join(directory, "task.yaml"))).toMatchObject({
      id: "task",
      repo: "project",
      baseCommit: "v1",
      testPatch: patch,
      task: { test: ["make", "test"], repo: { path: join(directory, "project"), patches: [patch] } },
    });
  });

  test.for([
    ["https://example.test/owner/name.git", "owner/name"],
    ["git@example.test:owner/name", "owner/name"],
  ])("takes the name of a repository from its URL: %s", async ([url, name]) => {
    writeFileSync(join(directory, "url.json"), JSON.stringify({ test: "make", repo: { url } }));
    expect((await readTask(join(directory, "url.json"))).repo).toBe(name);
  });
});

test.for([
  ["", 0],
  ["[1 2]", 3],
  ["[1,]", 3],
  ['{"a" 1}', 5],
  ["{'a': 1}", 1],
  ["[01]", 2],
  ['["a\tb"]', 1],
  ['"\\x"', 0],
  ["nul", 0],
  ["[] []", 3],
  ["[[]", 3],
] as const)("the first error of %j is at %i", ([text, offset]) => {
  expect(() => JSON.parse(text) as unknown).toThrow(SyntaxError);
  expect(findJsonError(text)?.offset).toBe(offset);
});

test("a text without an error has none", () => {
  expect(findJsonError('{"a": [1, -2.5e3, "\\u00e9\\n", true, null, {}], "b": []}\n')).toBeUndefined();
});
