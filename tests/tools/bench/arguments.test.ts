import { expect, test } from "vitest";
import { nearest, parseArguments, UsageError } from "../../bench/arguments.ts";

const names = ["engine.cold_start", "engine.exec", "engine.kill"];
const parse = (...argv: string[]) => parseArguments(argv, names);

test("without arguments all benchmarks run in full", () => {
  expect(parse()).toEqual({
    only: "",
    isQuick: false,
    jsonFile: undefined,
    driver: "gvisor",
    seed: undefined,
    wantsHelp: false,
  });
});

test("all options can be combined", () => {
  expect(parse("--only", "engine.e", "--quick", "--json=out.json", "--driver=local", "--seed", "17", "-h")).toEqual({
    only: "engine.e",
    isQuick: true,
    jsonFile: "out.json",
    driver: "local",
    seed: 17,
    wantsHelp: true,
  });
});

test.for([
  [["--quik"], "Cannot use --quik: there is no such option. Did you mean --quick?"],
  [["--jsno", "x"], "Cannot use --jsno: there is no such option. Did you mean --json?"],
  [["--rounds", "3"], "Cannot use --rounds: there is no such option. See --help."],
  [
    ["--only", "engine.kil_"],
    'Cannot select "engine.kil_": no benchmark has a name with this prefix. Did you mean engine.kill?',
  ],
  [["--only"], "Cannot use --only without a value"],
  [["--driver", "docker"], "Cannot use driver docker: the drivers are gvisor, local"],
  [["--seed", "-1"], "Cannot use seed -1: use a number of at most nine digits"],
  [["--seed=x"], "Cannot use seed x: use a number of at most nine digits"],
  [["--only="], "Cannot use --only without a value"],
  [["--quick=yes"], "Cannot use --quick with a value: it takes none"],
  [["engine.exec"], 'Cannot use "engine.exec": choose benchmarks with --only <prefix>'],
] as const)("%j is refused", ([argv, message]) => {
  expect(() => parse(...argv)).toThrow(new UsageError(message));
});

test("a word that resembles no candidate has no nearest", () => {
  expect(nearest("x", ["only", "quick"])).toBeUndefined();
});
