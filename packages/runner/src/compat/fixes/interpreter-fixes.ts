import { compareVersions } from "../../environments/python/interpreters.ts";
import type { CompatFix, EnvFacts, Symptoms } from "../compat-fix.ts";

interface InterpreterRow {
  pattern: RegExp;
  /** The newest Python on which it still works. */
  newest: readonly number[];
}

/** What no shim can give back, because it is grammar, a type in C, or an instruction of the parser. */
const rows: readonly InterpreterRow[] = [
  { pattern: /required field "lineno" missing from alias/, newest: [3, 9] },
  { pattern: /required field "type_ignores" missing from Module/, newest: [3, 7] },
  { pattern: /global flags not at the start of the expression/, newest: [3, 10] },
  { pattern: /got an unexpected keyword argument 'loop'|unexpected keyword argument 'loop'/, newest: [3, 9] },
  { pattern: /'xml\.etree\.ElementTree\.Element' object has no attribute '(getchildren|getiterator)'/, newest: [3, 8] },
  { pattern: /No module named '(asyncore|asynchat|smtpd)'/, newest: [3, 11] },
  { pattern: /module 'ssl' has no attribute 'wrap_socket'/, newest: [3, 11] },
  { pattern: /'\w*(Finder|Importer)\w*' object has no attribute 'find_module'/, newest: [3, 11] },
  { pattern: /No module named '(cgi|cgitb|pipes|crypt|telnetlib|typing\.io)'/, newest: [3, 12] },
  { pattern: /has no attribute '_flavour'/, newest: [3, 11] },
  { pattern: /^.*\basync\b.*\n[^\n]*\^[^\n]*\nSyntaxError: invalid syntax/m, newest: [3, 6] },
  { pattern: /SyntaxError: Generator expression must be parenthesized/, newest: [3, 6] },
  { pattern: /SyntaxError: Missing parentheses in call to 'print'/, newest: [2, 7] },
];

/** Most instances of the data sets were validated with it. */
const usual = [3, 9];

/** Packages with code for one Python only: with another interpreter they cannot be imported. */
const compiled = ["numpy", "pandas", "scipy", "matplotlib"];

const parse = (version: string): number[] => version.split(".").map(Number);

/** The newest interpreter of the machine that is not newer than this, if it is older than the present one. */
function older(facts: EnvFacts, newest: readonly number[]): string | undefined {
  return facts.interpreters
    .filter((version) => compareVersions(parse(version).slice(0, newest.length), newest) <= 0)
    .filter((version) => parse(version)[0] === newest[0] && compareVersions(parse(version), facts.version) < 0)
    .toSorted((a, b) => compareVersions(parse(b), parse(a)))[0];
}

function find({ text }: Symptoms, facts: EnvFacts): { symptom: string; version: string } | undefined {
  for (const { pattern, newest } of rows) {
    const symptom = pattern.exec(text)?.[0].trim().slice(0, 200);
    const version = symptom === undefined ? undefined : older(facts, newest);
    if (symptom !== undefined && version !== undefined) return { symptom, version };
  }
  return undefined;
}

const minor = (version: string): string => version.split(".").slice(0, 2).join(".");

export const interpreterFixes: readonly CompatFix[] = [
  {
    id: "interpreter",
    layer: "interpreter",
    languages: ["python"],
    risk: "low",
    why: "The code needs something that this Python no longer has and that cannot be given back.",
    what: "uses an older interpreter of this machine",
    detect: (symptoms, facts) => find(symptoms, facts)?.symptom,
    variant: (symptoms, facts) => minor(find(symptoms, facts)?.version ?? ""),
    plan: (symptoms, facts) => ({ interpreter: minor(find(symptoms, facts)?.version ?? symptoms.text) }),
  },
  {
    id: "assert-plain",
    layer: "command",
    languages: ["python"],
    risk: "changes-behaviour",
    why: "This pytest rewrites assertions into syntax trees that this Python refuses.",
    what: "runs pytest without rewritten assertions",
    detect: ({ text }) => /required field "\w+" missing from (?:alias|Module)/.exec(text)?.[0],
    plan: () => ({ appendArgs: ["--assert=plain"] }),
  },
  {
    id: "usual-interpreter",
    layer: "interpreter",
    languages: ["python"],
    risk: "low",
    why: "Tests that should pass do not, no other fix is known, and most instances were validated with Python 3.9.",
    what: "uses Python 3.9",
    detect: ({ failing, missing }, facts) => {
      const isNewer = compareVersions(facts.version.slice(0, 2), usual) > 0;
      const isCompiled = compiled.some((name) => name in facts.packages);
      const first = failing[0] ?? missing[0];
      if (!isNewer || isCompiled || first === undefined || older(facts, usual) === undefined) return undefined;
      return `${failing.length + missing.length} expected tests fail or are missing, such as ${first}`;
    },
    plan: () => ({ interpreter: "3.9" }),
    conflicts: ["interpreter"],
  },
];
