import { describe, expect, test } from "vitest";
import { readEvalScript } from "../../src/environments/recipes/eval-script.ts";
import { quote } from "../../src/environments/recipes/known-repositories.ts";
import { knownRepositories } from "../../src/environments/recipes/known-repositories.ts";
import { planTests } from "../../src/environments/recipes/plan-test-command.ts";
import { parseIni, readRequirements, requirementName, satisfies } from "../../src/environments/recipes/requirements.ts";
import { patchedFiles, testFiles } from "../../src/environments/recipes/test-files.ts";
import { Instance } from "../../src/models/task.ts";
import type { RepositoryTree } from "../../src/repository/repository-tree.ts";

const python = [3, 11, 2];

const treeOf = (files: Readonly<Record<string, string>>): RepositoryTree => ({
  commit: "0".repeat(40),
  read: async (path) => files[path],
  list: async () => Object.keys(files),
  describe: async () => undefined,
});

describe("an eval_script", () => {
  const script = `#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
export LANG="en_US.UTF-8"
git checkout abc tests/test_a.py
git apply -v - <<'EOF_1'
diff --git a/tests/test_a.py b/tests/test_a.py
+npm run evil
EOF_1
npm run build
: '>>>>> Start Test Output'
pytest -rA tests/test_a.py
: '>>>>> End Test Output'
git checkout abc tests/test_a.py
`;

  test("is read as its variables, its build and its tests", () => {
    expect(readEvalScript(script)).toEqual({
      env: { LANG: "en_US.UTF-8" },
      build: ["npm run build"],
      test: ["pytest -rA tests/test_a.py"],
    });
  });

  test("without marks has no tests", () => {
    expect(readEvalScript("pytest -rA")).toBeUndefined();
  });
});

const patch = `diff --git a/tests/app/test_a.py b/tests/app/test_a.py
--- a/tests/app/test_a.py
+++ b/tests/app/test_a.py
diff --git a/tests/app/data.json b/tests/app/data.json
new file mode 100644
diff --git a/tests/app/test_gone.py b/tests/app/test_gone.py
deleted file mode 100644
`;

test("the files of a patch are those that it leaves behind", () => {
  expect(patchedFiles(patch)).toEqual(["tests/app/test_a.py", "tests/app/data.json"]);
  expect(testFiles(patch)).toEqual(["tests/app/test_a.py"]);
});

const instance = (more: object): Instance =>
  Instance.parse({
    id: "x",
    repo: "owner/name",
    baseCommit: "0".repeat(40),
    task: { test: "true", environment: { language: "auto" } },
    testPatch: patch,
    ...more,
  });

const line = (argv: readonly string[]): string | undefined => argv[2];

test.for([
  ["django/django", './tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 app.test_a "$@"'],
  ["sympy/sympy", 'bin/test -C --verbose tests/app/test_a.py "$@"'],
  ["pallets/flask", 'pytest -rA tests/app/test_a.py "$@"'],
])("without an eval_script the tests of %s are run as its table says", ([repo, expected]) => {
  const planned = planTests(instance({ repo }), knownRepositories[repo ?? ""]);
  expect(line(planned.argv)).toBe(expected);
});

test.for([
  ["pytest -rA tests/app/test_a.py", "tests/app/test_atoll_canary.py::test_atoll_canary"],
  ["bin/test -C tests/app/test_a.py", "test_atoll_canary"],
  ["./tests/runtests.py --settings=x app.test_a", "test_atoll_canary (app.test_atoll_canary.AtollCanary)"],
  ["./node_modules/.bin/jasmine --config=jasmine.json", undefined],
  ["npx jest __tests__/Range.ts --verbose", "atoll canary has to fail"],
  ["npx jest __tests__/Range.ts --json | jq .", undefined],
  ["npx mocha -R tap test/unit/a.js -g 'limits'", undefined],
  ["npx mocha -R tap test/unit/a.js", "atoll canary has to fail"],
  [
    "pnpm run test packages/x/__tests__/a.spec.ts --no-watch --reporter=verbose",
    "packages/x/__tests__/atoll-canary.spec.ts > atoll canary has to fail",
  ],
])("the canary of %j is called %s", ([command, testId]) => {
  const evalScript = `: '>>>>> Start Test Output'\n${command}\n: '>>>>> End Test Output'`;
  expect(planTests(instance({ evalScript }), undefined).canary?.testId).toBe(testId);
});

test("tox is replaced by what it would run", () => {
  const evalScript =
    ": '>>>>> Start Test Output'\ntox --current-env -epy39 -v -- tests/a.py\n: '>>>>> End Test Output'";
  expect(line(planTests(instance({ evalScript }), undefined).argv)).toBe('python -m pytest -rA tests/a.py "$@"');
});

test("a locale that sandboxes do not have becomes one that they have", () => {
  const evalScript =
    "export LC_ALL=en_US.UTF-8\nexport A=b\n: '>>>>> Start Test Output'\ntrue\n: '>>>>> End Test Output'";
  expect(planTests(instance({ evalScript }), undefined).env).toEqual({ LC_ALL: "C.UTF-8", A: "b" });
});

test("a task's own command is run as it is", () => {
  const task = { test: "a; b", environment: { language: "none" } };
  expect(planTests(instance({ task, testPatch: "" }), undefined).argv).toEqual(["bash", "-c", "a; b"]);
});

test.for([
  ["requests>=2.0,<3", "requests"],
  ["Foo_Bar[extra] ~= 1.0 ; python_version >= '3.8'", "foo_bar"],
  ["tomli; python_version < '3.11'", undefined],
  ["colorama; sys_platform == 'win32'", undefined],
  ["typing; python_version < '3.5' or python_version >= '3.11'", "typing"],
  ["-r other.txt", undefined],
  ["# only a comment", undefined],
  ["git+https://example.com/x", undefined],
  ["name @ https://example.com/x.whl", "name"],
])("the requirement %j names %s", ([text, name]) => {
  expect(requirementName(text ?? "", python)).toBe(name);
});

test.for([
  [">=3.6", true],
  [">=3.6, <3.11", false],
  ["!=3.11.*", false],
  ["<=3.11", true],
  [">3.11", false],
  ["~=3.8", true],
] as const)("Python 3.11.2 meets %j: %s", ([conditions, holds]) => {
  expect(satisfies(python, conditions)).toBe(holds);
});

test("requirements are collected from every file that a project may keep them in", async () => {
  const tree = treeOf({
    "pyproject.toml":
      '[project]\nname = "x"\ndependencies = ["one"]\n[project.optional-dependencies]\ntest = ["two"]\ndocs = ["no"]',
    "setup.cfg": "[options]\ninstall_requires =\n    three>=1\n[options.extras_require]\ntesting = four\ndocs = no",
    "setup.py": "setup(install_requires=['five', \"six>1\"])",
    "requirements-dev.txt": "seven  # why\n-r nothing",
    "tox.ini": "[testenv]\ndeps =\n    eight\n    py39: nine\n    {[base]deps}",
  });
  const found = await readRequirements(tree, python);
  expect(found.toSorted()).toEqual(["eight", "five", "four", "nine", "one", "seven", "six", "three", "two"].toSorted());
});

test("a pyproject.toml that cannot be read asks for nothing", async () => {
  expect(await readRequirements(treeOf({ "pyproject.toml": "[[[" }), python)).toEqual([]);
});

test("continued lines of an INI file belong to their key", () => {
  expect(parseIni("[a]\nb = 1\n  2\nc: 3\n").get("a")).toEqual(
    new Map([
      ["b", "1\n2"],
      ["c", "3"],
    ]),
  );
});

test.for([
  ["plain/path_1.py", "plain/path_1.py"],
  ["it's", String.raw`'it'\''s'`],
  ["$(evil)", "'$(evil)'"],
])("%j is quoted for a shell as %s", ([word, quoted]) => {
  expect(quote(word ?? "")).toBe(quoted);
});
