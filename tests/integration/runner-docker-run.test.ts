import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RunReport } from "@atoll/runner";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runAtoll } from "../support/atoll-command.ts";
import { engineMissing, startContainerEngine, type TestContainerEngine } from "../support/container-engine.ts";
import { makeTaskRepository } from "../support/task-repository.ts";

const missing = await engineMissing("docker");
const because = missing === undefined ? "" : `, which was not tested: ${missing}`;

describe.skipIf(missing !== undefined)(`a run in containers of docker${because}`, () => {
  let root: string;
  let engine: TestContainerEngine;

  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), "atoll-docker-run-"));
    engine = await startContainerEngine("docker", { hasPython: true });
  });
  afterAll(async () => {
    await engine?.[Symbol.asyncDispose]();
    await rm(root, { recursive: true, force: true });
  });

  test("grades a reference patch, from a snapshot the second time, and leaves no container", async () => {
    const repository = await makeTaskRepository(join(root, "clones", "own", "calc"), {
      "calc.py": "def add(a, b):\n    return a - b\n",
      "test_calc.py": [
        "import unittest",
        "from calc import add",
        "class CalcTest(unittest.TestCase):",
        "    def test_add(self):",
        "        self.assertEqual(add(2, 3), 5)",
        "    def test_zero(self):",
        "        self.assertEqual(add(2, 0), 2)",
        "",
      ].join("\n"),
    });
    const row = {
      instance_id: "own__calc-1",
      repo: "own/calc",
      base_commit: repository.commit,
      patch: await repository.patchFor({ "calc.py": "def add(a, b):\n    return a + b\n" }),
      test_patch: "",
      FAIL_TO_PASS: ["test_add (test_calc.CalcTest.test_add)"],
      PASS_TO_PASS: ["test_zero (test_calc.CalcTest.test_zero)"],
      version: "1",
      eval_script: ": '>>>>> Start Test Output'\npython3 -m unittest -v\n: '>>>>> End Test Output'\n",
      log_parser: "parse_log_django",
    };
    await writeFile(join(root, "set.jsonl"), `${JSON.stringify(row)}\n`);
    const grade = async (out: string): Promise<RunReport> => {
      const directory = join(root, out);
      const outcome = await runAtoll(
        undefined,
        [
          ["swe", "validate-gold", "--dataset", join(root, "set.jsonl"), "--repos", join(root, "clones")],
          ["--client", "docker", "--image", engine.image, "--out", directory],
        ].flat(),
        { env: { ATOLL_CACHE_DIR: join(root, "cache"), DOCKER_HOST: engine.globalArgs[1] ?? "" } },
      );
      expect(outcome.stdout).toMatch(/^own__calc-1\tverdict\tresolved/m);
      expect(outcome).toMatchObject({ exitCode: 0, stderr: expect.stringContaining("1 resolved") });
      return RunReport.parse(JSON.parse(await readFile(join(directory, "run_report.json"), "utf8")));
    };
    const statusOf = ({ instances: [only] }: RunReport, stage: string) =>
      only?.stages.find((result) => result.stage === stage)?.status;
    expect(statusOf(await grade("first"), "checkout")).toBe("ok");
    const again = await grade("second");
    expect([statusOf(again, "checkout"), statusOf(again, "baseline")]).toEqual(["cached", "cached"]);
    expect(await engine.call(["ps", "--all", "--quiet"])).toBe("");
  });
});
