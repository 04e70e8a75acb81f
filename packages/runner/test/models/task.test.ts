import { expect, test } from "vitest";
import { RepoSpec } from "../../src/models/sandbox-config.ts";
import { TaskSpec, toArgv } from "../../src/models/task.ts";

test("a task of one line has every default", () => {
  const task = TaskSpec.parse({ test: "npm test" });
  expect(task).toMatchObject({ schemaVersion: 1, id: "task", parser: "auto", expectedFail: false });
  expect(task.sandbox).toMatchObject({ client: "atoll", template: "host", workdir: "/testbed" });
  expect(task.sandbox.limits.memoryBytes).toBe(2048 * 1024 * 1024);
});

test("a command line is run by a shell and an argument list is not", () => {
  expect(toArgv("a && b")).toEqual(["bash", "-c", "a && b"]);
  expect(toArgv(["a", "&&", "b"])).toEqual(["a", "&&", "b"]);
});

test.for([{}, { url: "u", path: "p" }])("a repository comes from exactly one place: %j", (spec) => {
  expect(RepoSpec.safeParse(spec).success).toBe(false);
});

test("an unknown field is refused", () => {
  expect(TaskSpec.safeParse({ test: "true", tset: "false" }).success).toBe(false);
});
