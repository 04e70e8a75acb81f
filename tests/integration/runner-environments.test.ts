import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { AtollClient, type Instance, type InstanceReport, runInstances, TaskSpec } from "@atoll/runner";
import { Atoll } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Files, GitRepository } from "../../packages/runner/test/support/git-repository.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let client: AtollClient;
let directory: string;

beforeAll(async () => {
  server = await startTestServer();
  client = new AtollClient({ atoll: new Atoll({ baseUrl: server.url, apiKey: server.key }) });
  directory = await makeDataDir();
});

afterAll(async () => {
  await client[Symbol.asyncDispose]();
  await server.dispose();
  await rm(directory, { recursive: true, force: true });
});

interface Project {
  files: Files;
  tests: Files;
  fix: Files;
  task: object;
}

/** Runs the fix of a project as a prediction, as often as asked. */
async function grade({ files, tests, fix, task }: Project, times = 1): Promise<InstanceReport[]> {
  await using repository = await GitRepository.make(files);
  const baseCommit = (await repository.git("rev-parse", "HEAD")).trim();
  const goldPatch = await repository.patch(fix);
  const id = `project-${randomUUID().slice(0, 8)}`;
  const instance: Instance = {
    id,
    repo: `example/${id}`,
    baseCommit,
    version: "1.2",
    goldPatch,
    testPatch: await repository.patch(tests),
    problemStatement: "",
    createdAt: "",
    task: TaskSpec.parse({ repo: { path: repository.path, ref: baseCommit }, ...task }),
  };
  const reports: InstanceReport[] = [];
  for (let time = 1; time <= times; time += 1) {
    const report = await runInstances({
      runId: `${id}-${time}`,
      directory: join(directory, `${id}-${time}`),
      cacheDirectory: join(directory, "cache"),
      client,
      items: [{ instance, prediction: { instanceId: id, model: "gold", patch: goldPatch } }],
      signal: new AbortController().signal,
    });
    reports.push(...report.instances);
  }
  return reports;
}

/** A project that was written for Python 3.9, with its version and its program in its metadata. */
const oldProject: Project = {
  files: {
    "setup.py": "from setuptools import setup\nsetup(name='old-project', version='1.2.3', packages=['old_project'])\n",
    "old_project/__init__.py": "from collections import Mapping\n\ndef size(value):\n    return -1\n",
    "tests/__init__.py": "",
    "tests/test_size.py": "import unittest\n",
  },
  tests: {
    "tests/test_size.py": `import unittest
from importlib.metadata import version
from old_project import size


class SizeTests(unittest.TestCase):
    def test_size(self):
        self.assertEqual(size({"a": 1}), 1)

    def test_version(self):
        self.assertEqual(version("old-project"), "1.2.3")

    def test_nothing_else_of_the_system_is_visible(self):
        with self.assertRaises(ImportError):
            import apt_pkg
`,
  },
  fix: {
    "old_project/__init__.py": "from collections import Mapping\n\ndef size(value):\n    return len(value)\n",
  },
  task: {
    environment: { language: "python" },
    test: ["python", "-m", "unittest", "--verbose", "tests.test_size"],
    parser: "unittest",
    failToPass: ["test_size (tests.test_size.SizeTests)"],
    passToPass: [
      "test_version (tests.test_size.SizeTests)",
      "test_nothing_else_of_the_system_is_visible (tests.test_size.SizeTests)",
    ],
  },
};

test("a project for an older Python is made to run by the shim, and the next run starts with it", async () => {
  const [first, second] = await grade(oldProject, 2);
  expect(first?.reason).toContain("1 of 1 tests are fixed");
  expect(first?.fixes).toMatchObject([{ id: "collections-abc", layer: "shim" }]);
  expect(first?.fixes[0]?.symptom).toContain("Mapping");
  expect(first?.fixes[0]?.used).toEqual(["collections-abc:collections.Mapping"]);
  expect(first?.stages.filter(({ stage }) => stage === "baseline").length).toBe(2);
  expect(second?.verdict).toBe("resolved");
  expect(second?.fixes.map(({ id }) => id)).toEqual(["collections-abc"]);
  expect(second?.stages.filter(({ stage }) => stage === "baseline").length).toBe(1);
});
