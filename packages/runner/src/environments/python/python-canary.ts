import { posix } from "node:path";
import type { CanaryPlan } from "../environment.ts";

const moduleName = "test_atoll_canary";
const failing = `def ${moduleName}():\n    assert False, "this test has to fail"\n`;
/** The line of the last test of a file has more on it in sympy's output, so the canary is not the last one. */
const last = "\n\ndef test_atoll_marker():\n    pass\n";

/** Its name in results is the same on every Python: newer ones put the method into it. */
const failingCase = `import unittest


class AtollCanary(unittest.TestCase):
    def ${moduleName}(self):
        self.fail("this test has to fail")

    def __str__(self):
        return "${moduleName} (%s.AtollCanary)" % self.__class__.__module__
`;

/** A failing test in the directory of the first test file, so that whatever changes tests there changes it too. */
export function planCanary(runner: "pytest" | "sympy" | "django", files: readonly string[]): CanaryPlan | null {
  const first = files.find((path) => path.endsWith(".py"));
  if (first === undefined) return null;
  const path = posix.join(posix.dirname(first), `${moduleName}.py`);
  if (runner === "pytest") {
    return { files: { [path]: failing }, appendArgs: [path], testId: `${path}::${moduleName}` };
  }
  if (runner === "sympy") {
    return { files: { [path]: `${failing}${last}` }, appendArgs: [path], testId: moduleName };
  }
  if (!path.startsWith("tests/")) return null;
  const label = path.slice("tests/".length, -".py".length).replaceAll("/", ".");
  return {
    files: { [path]: failingCase },
    appendArgs: [label],
    testId: `${moduleName} (${label}.AtollCanary)`,
  };
}
