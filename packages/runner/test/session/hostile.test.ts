import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { Calculator, canRun, RunPlace, whyNot } from "../support/run.ts";

beforeEach(({ skip }) => skip(!canRun, whyNot));

test("names, links and sizes of files are the sandbox's affair", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make({
    "-rf": "a file\n",
    "name\nwith a newline": "a file\n",
    'quote " and \\ backslash': "a file\n",
    outside: { link: "/etc" },
    "deep/above": { link: "../../../../etc/passwd" },
    "large.bin": new Uint8Array(64 * 1024 * 1024),
    ".gitattributes": "* filter=evil\n*.py text eol=crlf\n",
    ".gitmodules": '[submodule "s"]\n\tpath = s\n\turl = ext::sh -c touch% marker\n',
  });
  const setup = ["test -L outside && test -f ./-rf && test $(stat -c %s large.bin) = 67108864"];
  const item = await calculator.item(calculator.files.fixed, "m", calculator.withTask({ setup }));
  expect(await place.runOne(item)).toMatchObject({ verdict: "resolved" });
  const { directory } = place.options([]);
  expect((await readdir(directory)).toSorted()).toEqual([
    "events.ndjson",
    "logs",
    "report.html",
    "run_report.json",
    "run_report.yaml",
    "scratch",
  ]);
  expect(await readdir(join(directory, "scratch"))).toEqual([]);
});

test("a test patch may name its files as it likes", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make({ "tests/-x": "1\n", "tests/old\nname": "1\n" });
  const testPatch = await calculator.repository.patch({
    "test_calc.py": calculator.testsAfter,
    "tests/-x": "2\n",
    "tests/old\nname": null,
    "tests/new\nname": "2\n",
    "tests/*": "2\n",
  });
  const build = ['test "$(cat tests/-x)" = 2 && test ! -e "tests/old\nname" && test -e "tests/*"'];
  const change = { ...calculator.files.fixed, "tests/-x": "3\n", "tests/*": "3\n", "tests/kept": "3\n" };
  const item = await calculator.item(change, "m", { testPatch, ...calculator.withTask({ build }) });
  expect(await place.runOne(item)).toMatchObject({ verdict: "resolved" });
});

const newFile = (path: string): string =>
  `diff --git a/${path} b/${path}\nnew file mode 100755\n` +
  `--- /dev/null\n+++ b/${path}\n@@ -0,0 +1 @@\n+touch /tmp/marker\n`;

test.for([".git/hooks/post-checkout", "../escaped", "outside/escaped"])(
  "a prediction cannot write to %s",
  async (path) => {
    await using place = await RunPlace.make();
    await using calculator = await Calculator.make({ outside: { link: "/tmp" } });
    const report = await place.runOne(await calculator.item(newFile(path)));
    expect(report).toMatchObject({ verdict: "apply_failed", patchApplied: false });
  },
);

test("a tree that git refuses to lay out is an environment that cannot be made", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { repository } = calculator;
  const blob = (await repository.gitWith({ input: "evil\n" }, "hash-object", "-w", "--stdin")).trim();
  const inner = (await repository.gitWith({ input: `100755 blob ${blob}\tpost-checkout\n` }, "mktree")).trim();
  const tree = (await repository.gitWith({ input: `040000 tree ${inner}\t.git\n` }, "mktree")).trim();
  const ref = (await repository.git("commit-tree", "-m", "evil", tree)).trim();
  const repo = { ...calculator.instance.task.repo, ref, path: repository.path, patches: [] };
  const compat = { mode: "auto" as const, apply: [], never: [], allowBehaviourChanges: false };
  const task = calculator.withTask({ repo: { ...repo, compat } });
  const item = await calculator.item(calculator.files.fixed, "m", { ...task, testPatch: "" });
  const report = await place.runOne(item);
  expect(report).toMatchObject({ verdict: "env_invalid", reason: expect.stringContaining("invalid path") });
  await expect(stat("/tmp/marker")).rejects.toThrow("ENOENT");
});

test("an object that is missing or damaged is a failure of the infrastructure, and says so", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const id = (await calculator.repository.git("rev-parse", "HEAD:calc.py")).trim();
  const item = await calculator.item(calculator.files.fixed);
  await calculator.repository.removeObject(id);
  expect(await place.runOne(item)).toMatchObject({ verdict: "infra_error", reason: expect.stringMatching(/Cannot/) });
});
