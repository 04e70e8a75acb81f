import { describe, expect, test } from "vitest";
import { catalogue } from "../../src/compat/catalogue.ts";
import { chooseFixes, requestFixes } from "../../src/compat/choose-fixes.ts";
import type { EnvFacts, Symptoms } from "../../src/compat/compat-fix.ts";

const facts: EnvFacts = {
  language: "python",
  version: [3, 11, 2],
  interpreters: ["3.13.0", "3.12.1", "3.11.2", "3.10.13", "3.9.18", "3.8.18", "3.7.16", "3.6.15", "2.7.18"],
  repo: "owner/project",
  packages: {},
};
const nothing: Symptoms = { text: "", missing: [], seen: [], failing: [] };
const rules = { applied: [], never: [], allowBehaviourChanges: true };
const choose = (symptoms: Partial<Symptoms>, more: Partial<EnvFacts> = {}, changed: Partial<typeof rules> = {}) =>
  chooseFixes(catalogue, { ...nothing, ...symptoms }, { ...facts, ...more }, { ...rules, ...changed });

/** The fix that has to be among those chosen for a text, and something of its plan. */
const texts: readonly [text: string, id: string, plan: object][] = [
  [
    "ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.11/collections/__init__.py)",
    "collections-abc",
    { shim: ["collections-abc"] },
  ],
  ["AttributeError: module 'collections' has no attribute 'MutableMapping'", "collections-abc", {}],
  ["AttributeError: module 'inspect' has no attribute 'getargspec'", "inspect-getargspec", {}],
  ["ImportError: cannot import name 'formatargspec' from 'inspect' (/x)", "inspect-getargspec", {}],
  [
    "AttributeError: module 'asyncio' has no attribute 'coroutine'. Did you mean: 'coroutines'?",
    "asyncio-coroutine",
    {},
  ],
  ["ImportError: cannot import name 'gcd' from 'fractions' (/x)", "fractions-gcd", {}],
  ["AttributeError: module 'base64' has no attribute 'encodestring'", "base64-strings", {}],
  ["AttributeError: module 'time' has no attribute 'clock'", "time-clock", {}],
  ["AttributeError: module 'cgi' has no attribute 'escape'", "cgi-escape", {}],
  ["AttributeError: module 'platform' has no attribute 'linux_distribution'", "platform-dist", {}],
  ["AttributeError: 'HTMLParser' object has no attribute 'unescape'", "html-unescape", {}],
  ["AttributeError: 'WorkerThread' object has no attribute 'isAlive'", "thread-isalive", {}],
  ["AttributeError: 'TestThings' object has no attribute 'assertEquals'", "unittest-asserts", {}],
  ["AttributeError: module 'unittest' has no attribute '_TextTestResult'", "unittest-names", {}],
  ["TypeError: Population must be a sequence.  For dicts or sets, use sorted(d).", "random-sample", {}],
  ["ValueError: invalid mode: 'rU'", "open-u", {}],
  ["AttributeError: module 'os' has no attribute 'errno'", "os-errno", {}],
  ["AttributeError: module 'locale' has no attribute 'format'. Did you mean: '_format'?", "locale-format", {}],
  ["AttributeError: module 'pkgutil' has no attribute 'ImpImporter'", "pkgutil-impimporter", {}],
  ["ModuleNotFoundError: No module named 'imp'", "imp", {}],
  ["ImportError: cannot import name 'environmentfilter' from 'jinja2' (/x)", "jinja-aliases", {}],
  ["ImportError: cannot import name 'contextfunction' from 'jinja2.utils' (/x)", "jinja-aliases", {}],
  ["TypeError: EnvironBuilder.__init__() got an unexpected keyword argument 'as_tuple'", "werkzeug-as-tuple", {}],
  ["ImportError: cannot import name 'soft_unicode' from 'markupsafe' (/x)", "markupsafe-soft", {}],
  ["AttributeError: module 'numpy' has no attribute 'float'.", "numpy-aliases", {}],
  ["ModuleNotFoundError: No module named 'yaml'", "missing-module:yaml", { packages: { add: ["pyyaml"] } }],
  ["E   ModuleNotFoundError: No module named 'a_b.c'", "missing-module:a_b", { packages: { add: ["a-b"] } }],
  [
    "DeprecationWarning: distutils Version classes are deprecated. Use packaging.version instead.",
    "setuptools-distutils",
    { env: { SETUPTOOLS_USE_DISTUTILS: "stdlib" } },
  ],
  ["LookupError: setuptools-scm was unable to detect version for /testbed.", "scm-version", {}],
  ["error: externally-managed-environment", "externally-managed", { env: { PIP_BREAK_SYSTEM_PACKAGES: "1" } }],
  ["error in anyjson setup command: use_2to3 is invalid.", "use-2to3", {}],
  ['TypeError: required field "lineno" missing from alias', "assert-plain", { appendArgs: ["--assert=plain"] }],
  ["re.error: global flags not at the start of the expression at position 5", "interpreter:3.10", {}],
  ["TypeError: open() got an unexpected keyword argument 'loop'", "interpreter:3.9", { interpreter: "3.9" }],
  ["    async = True\n          ^\nSyntaxError: invalid syntax", "interpreter:3.6", { interpreter: "3.6" }],
  ["    ^\nSyntaxError: Generator expression must be parenthesized", "interpreter:3.6", { interpreter: "3.6" }],
];

describe.for(texts)("the symptom %j", ([text, id, plan]) => {
  test(`is answered by ${id}`, () => {
    const chosen = choose({ text: `first line\n${text}\nlast line` });
    const found = chosen.find(({ fix }) => fix.id === id);
    expect(chosen.map(({ fix }) => fix.id)).toContain(id);
    expect(found?.plan).toMatchObject(plan);
    expect(text).toContain(found?.symptom.split("\n")[0]?.trim());
  });
});

test.for([
  ["openssl-legacy", "error:0308010C:digital envelope routines::unsupported"],
  ["ipv4-first", "Error: connect ECONNREFUSED ::1:8080"],
  ["node-heap", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"],
  [
    "unhandled-rejections",
    "    triggerUncaughtException(err, true /* fromPromise */);\n[UnhandledPromiseRejection: promise",
  ],
])("Node's symptom of %s is recognized", ([id, text]) => {
  expect(choose({ text: text ?? "" }, { language: "node", version: [20, 20, 2] }).map(({ fix }) => fix.id)).toEqual([
    id,
  ]);
});

test("requests to httpbin.org are answered by a local one", () => {
  const text = "requests.exceptions.ConnectionError: HTTPConnectionPool(host='httpbin.org', port=80): Max retries";
  const [chosen] = choose({ text, failing: ["tests/test_requests.py::test_get"] });
  expect(chosen).toMatchObject({
    fix: { id: "local-httpbin" },
    plan: { packages: { add: ["httpbin"] }, shim: ["local-httpbin"] },
  });
});

test("an unreachable network is a symptom only where a timeout was expected", () => {
  const text = "OSError: [Errno 101] Network is unreachable";
  const withTimeout = choose({ text, failing: ["test_requests.py::TestTimeout::test_connect_timeout"] });
  expect(withTimeout.map(({ fix }) => fix.id)).toEqual(["connect-timeouts"]);
  expect(choose({ text, failing: ["test_a"] }).map(({ fix }) => fix.id)).not.toContain("connect-timeouts");
});

test("names of tests with the method in them are answered by the names of older Pythons", () => {
  const chosen = choose({ missing: ["test_add (app.tests.Lazy)"], seen: ["test_add (app.tests.Lazy.test_add)"] });
  expect(chosen).toMatchObject([
    {
      fix: { id: "unittest-ids" },
      plan: { shim: ["unittest-ids"] },
      symptom: "test_add (app.tests.Lazy) is called test_add (app.tests.Lazy.test_add)",
    },
  ]);
});

test("names that a docstring has replaced are answered by the descriptions of older Pythons", () => {
  const chosen = choose({ missing: ["test_add (app.tests.Lazy)"], seen: ["Adds two numbers."] });
  expect(chosen.map(({ fix }) => fix.id)).toEqual(["unittest-docs"]);
});

test("without a symptom no fix is chosen", () => {
  expect(choose({ text: "23 passed in 1.2s", seen: ["test_a"] })).toEqual([]);
});

test("fixes of a later layer wait until those of an earlier one were tried", () => {
  const text = "cannot import name 'Mapping' from 'collections' (x)\nNo module named 'yaml'";
  expect(choose({ text }).map(({ fix }) => fix.id)).toEqual(["collections-abc"]);
  const next = choose({ text }, {}, { applied: ["collections-abc"] as never[] });
  expect(next.map(({ fix }) => fix.id)).toEqual(["missing-module:yaml"]);
});

test("a second missing module is answered though the first one was", () => {
  const chosen = choose({ text: "No module named 'six'" }, {}, { applied: ["missing-module:yaml"] as never[] });
  expect(chosen.map(({ fix }) => fix.id)).toEqual(["missing-module:six"]);
});

test("a fix that changes behaviour is chosen only when that is allowed", () => {
  const symptoms = { text: "error in x setup command: use_2to3 is invalid." };
  expect(choose(symptoms, {}, { allowBehaviourChanges: false })).toEqual([]);
});

test("a fix that a configuration rules out is not chosen", () => {
  const symptoms = { text: "module 'time' has no attribute 'clock'" };
  expect(choose(symptoms, {}, { never: ["time-clock"] as never[] })).toEqual([]);
});

test("the usual interpreter is chosen when tests fail that should pass, and only where it can be used", () => {
  const symptoms = { failing: ["tests/test_a.py::test_b"] };
  expect(choose(symptoms).map(({ fix, plan }) => [fix.id, plan.interpreter])).toEqual([["usual-interpreter", "3.9"]]);
  expect(choose(symptoms, { interpreters: ["3.11.2"] })).toEqual([]);
  expect(choose(symptoms, { packages: { numpy: "1.24.2" } })).toEqual([]);
  expect(choose(symptoms, { version: [3, 9, 18] })).toEqual([]);
});

test("a fix is requested by its id, with what follows the colon as the symptom", () => {
  const { chosen, unknown } = requestFixes(catalogue, ["missing-module:yaml", "time-clock", "no-such"], facts);
  expect(chosen.map(({ fix, plan }) => [fix.id, plan])).toEqual([
    ["time-clock", { shim: ["time-clock"] }],
    ["missing-module:yaml", { packages: { add: ["pyyaml"] } }],
  ]);
  expect(unknown).toEqual(["no-such"]);
});

test("every fix says why it is needed, in a sentence, and what it does", () => {
  const silent = catalogue.filter(({ why, what }) => !/^[A-Z].+\.$/.test(why) || what === "");
  expect(silent).toEqual([]);
});
