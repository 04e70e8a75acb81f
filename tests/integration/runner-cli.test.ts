import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Atoll } from "@atoll/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runAtoll, RunningAtoll, type CommandOutcome } from "../support/atoll-command.ts";
import { makeTaskRepository, type TaskRepository } from "../support/task-repository.ts";
import { Terminal } from "../support/terminal.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const hello = fileURLToPath(new URL("../../examples/tasks/hello.yaml", import.meta.url));

const calc = {
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
};
const fixed = { "calc.py": "def add(a, b):\n    return a + b\n" };
const wrong = { "calc.py": "def add(a, b):\n    return 5\n" };

let root: string;
let server: TestServer;
let repository: TaskRepository;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "atoll-runner-cli-"));
  server = await startTestServer();
  repository = await makeTaskRepository(join(root, "clones", "own", "calc"), calc);
});
afterAll(async () => {
  await server.dispose();
  await rm(root, { recursive: true, force: true });
});

const atoll = async (...words: string[]): Promise<CommandOutcome> =>
  runAtoll(server, words, { env: { ATOLL_CACHE_DIR: join(root, "cache") } });

async function taskFile(name: string, fields: object): Promise<string> {
  const path = join(root, `${name}.json`);
  const task = {
    id: name,
    repo: { path: repository.path },
    environment: { language: "none" },
    test: ["python3", "-m", "unittest", "-v"],
    parser: "unittest",
    canary: false,
    ...fields,
  };
  await writeFile(path, JSON.stringify(task));
  return path;
}

const testAdd = "test_add (test_calc.CalcTest.test_add)";
const testZero = "test_zero (test_calc.CalcTest.test_zero)";

async function dataSet(...ids: string[]): Promise<string> {
  const path = join(root, `${ids.join("-")}.jsonl`);
  const patch = await repository.patchFor(fixed);
  const rows = ids.map((id) => ({
    instance_id: id,
    repo: "own/calc",
    base_commit: repository.commit,
    patch,
    test_patch: "",
    FAIL_TO_PASS: JSON.stringify([testAdd]),
    PASS_TO_PASS: JSON.stringify([testZero]),
    version: "1",
    eval_script: ": '>>>>> Start Test Output'\npython3 -m unittest -v\n: '>>>>> End Test Output'\n",
    log_parser: "parse_log_django",
  }));
  await writeFile(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  return path;
}

async function liveSandboxes(): Promise<number> {
  await using client = new Atoll({ baseUrl: server.url, apiKey: server.key });
  let count = 0;
  for await (const { state } of client.sandboxes()) if (!["killed", "released"].includes(state)) count += 1;
  return count;
}

describe("atoll task", () => {
  test("runs the example without a server, which it says in one line", async () => {
    const words = ["task", "run", hello, "--out", join(root, "hello")];
    const { exitCode, stdout, stderr } = await runAtoll(undefined, words, { env: { HOME: join(root, "home") } });
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0, stderr: expect.stringContaining("1 resolved") });
    expect(stderr.split("\n").filter((line) => line.includes("a private one was started"))).toHaveLength(1);
    expect(stdout).toMatch(/^hello\tverdict\tresolved\t/m);
    const report = JSON.parse(await readFile(join(root, "hello", "run_report.json"), "utf8"));
    expect(report.instances[0].attempts[0].tests).toEqual({
      "test_greets_by_name (test_greeting.GreetingTest.test_greets_by_name)": "passed",
      "test_greets_the_world (test_greeting.GreetingTest.test_greets_the_world)": "passed",
    });
  });

  test("ends with 1 when the tests are not as expected, and with 0 when they are", async () => {
    const expecting = await taskFile("passing", { passToPass: [testAdd, testZero] });
    const failing = await atoll("task", "run", expecting, "--out", join(root, "failing"));
    expect(failing).toMatchObject({ exitCode: 1, stdout: expect.stringContaining("verdict\tunresolved") });
    const before = await taskFile("before", { expectedFail: true });
    expect(await atoll("task", "run", before, "--out", join(root, "before"))).toMatchObject({ exitCode: 0 });
    expect(await liveSandboxes()).toBe(0);
  });

  test("ends with 2 for a mistake in a file, and says where it is", async () => {
    const path = await taskFile("typo", { tset: "true" });
    const { exitCode, stderr } = await atoll("task", "run", path);
    expect(exitCode).toBe(2);
    expect(stderr).toContain(`${path}:1:`);
    expect((await atoll("task", "run", join(root, "nothing.yaml"))).exitCode).toBe(2);
    expect((await atoll("task", "run", path, "--jobs", "none")).exitCode).toBe(2);
  });

  test("ends with 3 when the server that is named does not answer", async () => {
    const path = await taskFile("unreached", {});
    const nowhere = { url: "http://127.0.0.1:9", key: "atk_none" };
    const words = ["task", "run", path, "--out", join(root, "unreached")];
    const { exitCode } = await runAtoll(nowhere, words, { env: { ATOLL_CACHE_DIR: join(root, "cache") } });
    expect(exitCode).toBe(3);
  });

  test("smoke checks a local repository out", async () => {
    const { exitCode, stdout } = await atoll("task", "smoke", repository.path, "--out", join(root, "smoke"));
    expect({ exitCode, stdout }).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("verdict\tresolved") });
    const missing = await atoll("task", "smoke", repository.path, "--test", "test -e none", "--out", join(root, "s2"));
    expect(missing.exitCode).toBe(1);
  });

  test("explain says what would be run, and runs nothing", async () => {
    const path = await taskFile("explained", { passToPass: [testZero] });
    const { exitCode, stdout } = await atoll("task", "explain", path, "--json");
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      repository: { from: repository.path, commit: repository.commit },
      test: { parser: "unittest", cwd: "/testbed" },
      expected: { failToPass: 0, passToPass: 1 },
    });
    expect((await atoll("task", "explain", path)).stdout).toContain(`commit\t${repository.commit}\n`);
  });
});

describe("atoll swe", () => {
  test("grades predictions, and ends with 0 whatever the verdicts are", async () => {
    const path = await dataSet("own__calc-1", "own__calc-2", "own__calc-3");
    const predictions = join(root, "predictions.jsonl");
    const rows = [
      { instance_id: "own__calc-1", model_name_or_path: "m", model_patch: await repository.patchFor(fixed) },
      { instance_id: "own__calc-2", model_name_or_path: "m", model_patch: await repository.patchFor(wrong) },
      { instance_id: "own__calc-3", model_name_or_path: "m", model_patch: "" },
    ];
    await writeFile(predictions, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
    const words = ["swe", "run", "--dataset", path, "--predictions", predictions, "--repos", join(root, "clones")];
    const out = join(root, "graded");
    const graded = await atoll(...words, "--out", out, "--run-id", "one", "-j", "2", "--json");
    expect(graded).toMatchObject({ exitCode: 0, stderr: "" });
    const lines = graded.stdout.trim().split("\n");
    const events = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(events.at(-1)).toMatchObject({ type: "report", directory: out, interrupted: false });
    const ends = events.filter(({ type }) => type === "instance.end");
    const verdicts = ends.map(({ instance, report }) => [instance, (report as { verdict: string }).verdict]);
    expect(Object.fromEntries(verdicts)).toEqual({
      "own__calc-1": "resolved",
      "own__calc-2": "unresolved",
      "own__calc-3": "empty_patch",
    });
    // A second call of the run has nothing left to do; it can also expect a verdict.
    const again = await atoll(...words, "--out", out, "--run-id", "one", "--json", "--expect", "resolved");
    expect(again.exitCode).toBe(1);
    expect(again.stdout).not.toContain("stage.start");
  });

  test("validates reference patches, all or one", async () => {
    const path = await dataSet("own__calc-1", "own__calc-2");
    const repos = ["--dataset", path, "--repos", join(root, "clones")];
    const all = await atoll("swe", "validate-gold", ...repos, "--out", join(root, "gold"));
    expect({ exitCode: all.exitCode, stderr: all.stderr }).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining("2 resolved"),
    });
    expect((await atoll("swe", "smoke", "own__calc-2", ...repos, "--out", join(root, "smoked"))).exitCode).toBe(0);
    const unknown = await atoll("swe", "smoke", "own__calc-9", ...repos);
    expect(unknown).toMatchObject({ exitCode: 2, stderr: expect.stringContaining("own__calc-9") });
  });

  test("refuses predictions for instances that the data set does not have", async () => {
    const path = await dataSet("own__calc-1");
    const predictions = join(root, "stray.json");
    await writeFile(predictions, JSON.stringify({ "other__name-1": "" }));
    const { exitCode, stderr } = await atoll("swe", "run", "--dataset", path, "--predictions", predictions);
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 2, stderr: expect.stringContaining("other__name-1") });
  });
});

describe("an interrupted run", () => {
  const begun = async (name: string): Promise<RunningAtoll> => {
    const slow = await taskFile(name, { test: "echo begun; sleep 6", parser: "exit-code", passToPass: [] });
    const words = ["task", "run", slow, "--out", join(root, name), "--json"];
    const running = new RunningAtoll(server, words, { ATOLL_CACHE_DIR: join(root, "cache") });
    await expect.poll(() => running.stdout.toString()).toContain('"stage":"baseline"');
    return running;
  };
  const reportOf = async (name: string): Promise<Record<string, unknown>> =>
    JSON.parse(await readFile(join(root, name, "run_report.json"), "utf8")) as Record<string, unknown>;

  test("finishes what runs at the first Ctrl-C", async () => {
    await using running = await begun("drained");
    running.child.kill("SIGINT");
    expect((await running.ended).exitCode).toBe(130);
    expect(await reportOf("drained")).toMatchObject({ interrupted: false, counts: { resolved: 1 } });
    expect(await liveSandboxes()).toBe(0);
  });

  test("ends everything at the second, and leaves no sandbox", async () => {
    await using running = await begun("killed");
    running.child.kill("SIGINT");
    await expect.poll(() => running.stdout.toString()).toContain("run.drain");
    running.child.kill("SIGINT");
    expect((await running.ended).exitCode).toBe(130);
    expect(await reportOf("killed")).toMatchObject({ interrupted: true });
    expect(await liveSandboxes()).toBe(0);
  });
});

test("a person sees a table that is replaced by the verdicts", async () => {
  const path = await taskFile("watched", { test: "echo a line to see; sleep 2", parser: "exit-code" });
  await using terminal = new Terminal(server, ["task", "run", path, "--out", join(root, "watched")], {
    ATOLL_CACHE_DIR: join(root, "cache"),
  });
  const { exitCode, modes } = await terminal.ended;
  expect({ exitCode, modes }).toEqual({
    exitCode: 0,
    modes: { newlines: true, echo: true, canonical: true, signals: true },
  });
  expect(terminal.screen).toContain("LAST LINE");
  expect(terminal.screen).toContain("a line to see");
  expect(terminal.screen).toContain("0 of 1 done");
  expect(terminal.screen).toMatch(/resolved.*watched/);
});

test("the snapshots of runs are listed and removed", async () => {
  const path = await taskFile("cached", { setup: ["echo made > made-by-setup"] });
  await atoll("task", "run", path, "--out", join(root, "cached"));
  const listed = JSON.parse((await atoll("cache", "ls", "--json")).stdout) as { snapshots: { name: string }[] };
  expect(listed.snapshots.length).toBeGreaterThan(0);
  expect((await atoll("cache", "prune")).exitCode).toBe(2);
  expect((await atoll("cache", "prune", "--keep", "100g")).stdout).toBe("");
  expect((await atoll("cache", "prune", "--all")).stdout.trim().split("\n")).toHaveLength(listed.snapshots.length);
  expect((await atoll("cache", "ls")).stdout).toBe("");
});
