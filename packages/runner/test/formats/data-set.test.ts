import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { run } from "@atoll/host";
import { afterAll, describe, expect, test } from "vitest";
import { chooseInstances, readDataSet } from "../../src/formats/data-set.ts";
import { goldPredictions, readPredictions } from "../../src/formats/predictions.ts";
import { readQuarantine } from "../../src/formats/quarantine.ts";

const directory = mkdtempSync(join(tmpdir(), "atoll-data-"));
afterAll(() => rmSync(directory, { recursive: true }));

function write(path: string, content: string | object): string {
  const full = join(directory, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, typeof content === "string" ? content : JSON.stringify(content));
  return full;
}

const row = {
  instance_id: "owner__name-1",
  repo: "owner/name",
  base_commit: "0123456789abcdef0123456789abcdef01234567",
  patch: "diff --git a/x b/x\r\n",
  test_patch: "diff --git a/t b/t\n",
  problem_statement: "It is broken.",
  hints_text: null,
  created_at: "2020-01-01T00:00:00Z",
  version: "1.10",
  FAIL_TO_PASS: '["a::b", "c \\u2013 d"]',
  PASS_TO_PASS: [],
  environment_setup_commit: "",
};

describe("rows of SWE-bench", () => {
  test("have their lists as lists or as text", async () => {
    const [instance] = await readDataSet(write("one.json", row));
    expect(instance).toMatchObject({
      id: "owner__name-1",
      repo: "owner/name",
      baseCommit: row.base_commit,
      version: "1.10",
      goldPatch: row.patch,
      testPatch: row.test_patch,
      task: { failToPass: ["a::b", "c – d"], passToPass: [], failOnly: false, expectedFail: true, parser: "auto" },
    });
    expect(instance).not.toHaveProperty("evalScript");
  });

  test("of version 5 bring their own script and parser", async () => {
    const script = "#!/bin/bash\npytest -rA\n";
    const more = { eval_script: script, log_parser: "parse_log_requests", eval_type: "fail_only", split: "test" };
    const [instance] = await readDataSet(write("five.jsonl", `${JSON.stringify({ ...row, ...more })}\n\n`));
    expect(instance).toMatchObject({
      evalScript: script,
      logParser: "parse_log_requests",
      task: { parser: "pytest-options", failOnly: true },
    });
  });

  test("of older data sets are read with the parser of their repository", async () => {
    const [instance] = await readDataSet(write("old.json", [{ ...row, repo: "markedjs/marked" }]));
    expect(instance?.task).toMatchObject({ parser: "jasmine", failOnly: true });
  });

  test.for([
    ["a.jsonl", [row, { ...row, instance_id: 7 }], /a\.jsonl:2:\d+: instance_id: expected a text, but it is 7/],
    ["b.jsonl", [row, { ...row, instance_id: "x", FAIL_TO_PASS: "[1]" }], /FAIL_TO_PASS\):2:2: \[0\]: expected a text/],
    ["c.jsonl", [row, { ...row, instance_id: "x", FAIL_TO_PASS: "[" }], /expected a value or \], but the text ends/],
    ["d.jsonl", [row, row], /the instance owner__name-1 is there twice/],
    ["e.jsonl", [], /there is no instance in it/],
    ["f.jsonl", [{ ...row, base_commit: "main" }], /base_commit: expected .*, but it is "main"/],
  ] as const)("a mistake in %s is named", async ([name, rows, message]) => {
    const path = write(name, rows.map((value) => `${JSON.stringify(value)}\n`).join(""));
    await expect(readDataSet(path)).rejects.toThrow(message);
  });

  test("a broken line of JSONL is named with its line", async () => {
    const path = write("broken.jsonl", `${JSON.stringify(row)}\n\n{"instance_id": }\n`);
    await expect(readDataSet(path)).rejects.toThrow(/broken\.jsonl:3:17: expected a value, but there is "}"/);
  });

  test("Parquet is refused with the way out", async () => {
    await expect(readDataSet(write("x.parquet", "PAR1"))).rejects.toMatchObject({ code: "unsupported" });
  });

  test("a folder has the instances of all its files", async () => {
    write("folder/b.json", { ...row, instance_id: "b" });
    write("folder/a.jsonl", `${JSON.stringify({ ...row, instance_id: "a" })}\n`);
    expect((await readDataSet(join(directory, "folder"))).map(({ id }) => id)).toEqual(["a", "b"]);
  });
});

test("instances are chosen by id, and a slip is no shorter run", async () => {
  const instances = await readDataSet(join(directory, "folder"));
  expect(chooseInstances(instances, ["b", "a"]).map(({ id }) => id)).toEqual(["b", "a"]);
  expect(() => chooseInstances(instances, ["c"])).toThrow(/the data set has no such instance/);
});

test("a folder of SWE-bench 5 is read with patches as they are", async () => {
  const crlf = "diff --git a/x b/x\r\n--- a/x\r\n+++ b/x\r\n";
  const task = "five/tasks/owner__name-1";
  write("five/sweb.yaml", "datasets: [x/y]\n");
  write(
    `${task}/task.yaml`,
    `instance_id: owner__name-1\nrepo: owner/name\nbase_commit: 12e34567\nversion: '1.10'\neval_type: null\n`,
  );
  write(`${task}/tests.json`, { FAIL_TO_PASS: ["a"], PASS_TO_PASS: ["b"] });
  write(`${task}/gold.patch`, crlf);
  write(`${task}/test.patch`, crlf);
  write(`${task}/eval.sh`, "#!/bin/bash\n");
  write(`${task}/problem_statement.md`, "It is broken.\n");
  write("five/tasks/notes/readme.txt", "no task");
  expect(await readDataSet(join(directory, "five"))).toEqual([
    expect.objectContaining({
      id: "owner__name-1",
      baseCommit: "12e34567",
      version: "1.10",
      goldPatch: crlf,
      testPatch: crlf,
      evalScript: "#!/bin/bash\n",
      problemStatement: "It is broken.\n",
      task: expect.objectContaining({ failToPass: ["a"], passToPass: ["b"] }),
    }),
  ]);
});

describe("folders of terminal tasks", () => {
  /** Runs the test command of a task as a session does, and returns its exit code. */
  async function exitCode(folder: string): Promise<number | null> {
    const [instance] = await readDataSet(folder);
    const work = mkdtempSync(join(directory, "work-"));
    const options = { cwd: work, signal: new AbortController().signal, timeoutMs: 60_000 };
    const applied = await run("git", ["apply", "-"], { ...options, input: instance?.testPatch ?? "" });
    expect(applied.stderr).toBe("");
    const [file = "", ...args] = instance?.task.test ?? [];
    return (await run(file, args, options)).exitCode;
  }

  test("Harbor: limits, instruction, and the reward as exit code", async () => {
    const folder = join(directory, "harbor", "hello");
    write(
      "harbor/hello/task.toml",
      `version = '1.0'\n[verifier]\ntimeout_sec = 120.0\n` +
        `[environment]\ncpus = 2\nmemory_mb = 512\ndocker_image = 'x:1'\n`,
    );
    write("harbor/hello/instruction.md", "Say hello.\n");
    const script = "#!/bin/bash\ntest -f /tests/data.bin && cat /tests/reward > /logs/verifier/reward.txt\n";
    chmodSync(write("harbor/hello/tests/test.sh", script), 0o755);
    writeFileSync(write("harbor/hello/tests/data.bin", ""), Buffer.from([0, 255, 10, 13, 0]));
    const reward = write("harbor/hello/tests/reward", "0\n");
    const [instance] = await readDataSet(join(directory, "harbor"));
    expect(instance).toMatchObject({
      id: "hello",
      problemStatement: "Say hello.\n",
      task: {
        parser: "exit-code",
        expectedFail: true,
        sandbox: { client: "docker", image: "x:1", testTimeoutMs: 120_000, limits: { cpus: 2, memoryBytes: 2 ** 29 } },
      },
    });
    expect(await exitCode(folder)).toBe(1);
    writeFileSync(reward, "1.0\n");
    expect(await exitCode(folder)).toBe(0);
  });

  test("a mistake in task.toml is named with its line", async () => {
    write("bad/task.toml", "[verifier]\ntimeout_sec = 120\n\n[environment]\n  cpus = 'two'\n");
    await expect(readDataSet(join(directory, "bad"))).rejects.toThrow(
      /task\.toml:5:3: environment\.cpus: expected a number, but it is "two"/,
    );
    write("bad/task.toml", "[verifier\n");
    await expect(readDataSet(join(directory, "bad"))).rejects.toThrow(/task\.toml:1:\d+: /);
  });

  test("terminal-bench: the script beside the tests is run", async () => {
    write("terminal/task.yaml", "instruction: |-\n  Do it.\nmax_test_timeout_sec: 60.0\nparser_name: pytest\n");
    write("terminal/run-tests.sh", "#!/bin/bash\ngrep -q yes $TEST_DIR/answer\n");
    write("terminal/tests/answer", "yes\n");
    const [instance] = await readDataSet(join(directory, "terminal"));
    expect(instance).toMatchObject({ problemStatement: "Do it.", task: { parser: "pytest" } });
    expect(await exitCode(join(directory, "terminal"))).toBe(0);
  });
});

describe("predictions", () => {
  const expected = [
    { instanceId: "a", model: "m/1", patch: "diff\r\n" },
    { instanceId: "b", model: "unknown", patch: null },
  ];
  const rows = [
    { instance_id: "a", model_name_or_path: "m/1", model_patch: "diff\r\n" },
    { instance_id: "b", model_patch: null },
  ];

  test.for([
    ["lines", "p.jsonl", rows.map((value) => JSON.stringify(value)).join("\n")],
    ["a list", "p.json", JSON.stringify(rows)],
    ["a map", "map.json", JSON.stringify({ a: { model_name_or_path: "m/1", model_patch: "diff\r\n" }, b: null })],
  ])("are read from %s", async ([, name = "", text = ""]) => {
    expect(await readPredictions(write(name, text))).toEqual(expected);
  });

  test("a mistake is named", async () => {
    const missing = write("missing.json", [{ model_patch: "" }]);
    await expect(readPredictions(missing)).rejects.toThrow(/missing\.json:1:2: \[0\]\.instance_id: .* it is missing/);
    const twice = write("twice.json", [rows[1], rows[1]]);
    await expect(readPredictions(twice)).rejects.toThrow(/two predictions for b/);
  });

  test("of the reference are the patches of the data set", async () => {
    const instances = await readDataSet(join(directory, "one.json"));
    expect(goldPredictions(instances)).toEqual([{ instanceId: row.instance_id, model: "gold", patch: row.patch }]);
  });
});

test("a quarantine is a list, or lines with remarks", async () => {
  expect(await readQuarantine(write("q.txt", "# flaky\na::b\n\n  c d\r\n"))).toEqual(["a::b", "c d"]);
  expect(await readQuarantine(write("q.yaml", "- a::b\n- c d\n"))).toEqual(["a::b", "c d"]);
});
