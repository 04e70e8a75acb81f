import { beforeEach, expect, test } from "vitest";
import { Calculator, canRun, RunPlace, whyNot } from "../support/run.ts";

beforeEach(({ skip }) => skip(!canRun, whyNot));

/** The function `one` is wrong with odd seeds, as code that depends on the order of a set is. */
const seedDependent = (add: string): string =>
  `import os\n\n\ndef add(a, b):\n    return ${add}\n\n\n` +
  'def one():\n    return 1 + int(os.environ["PYTHONHASHSEED"]) % 2\n';

test("a test whose outcome depends on the seed is flaky, with the seeds of each outcome", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const item = await calculator.item({ "calc.py": seedDependent("a + b") });
  const report = await place.runOne(item, { repeat: 3, seeds: [4, 5, 6] });
  expect(report.verdict).toBe("flaky");
  expect(report.flakyTests).toEqual([{ test: "test_calc.py::test_one", outcomes: { passed: [4, 6], failed: [5] } }]);
});

test("the same seed gives the same outcome each time", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const item = await calculator.item({ "calc.py": seedDependent("a + b") });
  expect(await place.runOne(item, { repeat: 2, seeds: [2, 4] })).toMatchObject({ verdict: "resolved", flakyTests: [] });
});

test("a failure of tests that should keep passing is looked at again with other seeds before it counts", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const item = await calculator.item({ "calc.py": seedDependent("a + b") });
  const report = await place.runOne(item, { seeds: [1] });
  expect(report).toMatchObject({ verdict: "flaky" });
  expect(report.attempts.filter(({ kind }) => kind === "prediction").map(({ seed }) => seed)).toEqual([1, 0, 2]);
});

test("a quarantined test is listed and decides nothing", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const item = await calculator.item({ "calc.py": seedDependent("a + b") });
  const report = await place.runOne(item, { repeat: 3, quarantine: ["test_calc.py::test_one"] });
  expect(report).toMatchObject({ verdict: "resolved", flakyTests: [{ test: "test_calc.py::test_one" }] });
});

test("a baseline that holds with one seed and not with another makes no prediction look bad", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make({ "calc.py": seedDependent("a - b") });
  const item = await calculator.item({ "calc.py": seedDependent("a * b") });
  const report = await place.runOne(item, { seeds: [1, 2] });
  expect(report.attempts.filter(({ kind }) => kind === "baseline")).toHaveLength(2);
  expect(report.verdict).toBe("flaky");
});
