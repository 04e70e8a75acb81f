import { SaxesParser } from "saxes";
import type { TestStatus } from "../models/report.ts";
import { TestCollector, type ParsedTests, type Parser } from "./parser.ts";

interface Case {
  name: string;
  classname: string;
  file: string;
  status: TestStatus;
}

/** `tests.test_x.TestClass` of pytest as the beginning of a node id: `tests/test_x.py::TestClass`. */
function pytestPath(classname: string, file: string): string {
  const parts = classname.split(".");
  const firstClass = parts.findIndex((part) => /^_*[A-Z]/.test(part));
  const classes = firstClass === -1 ? [] : parts.slice(firstClass);
  const modules = firstClass === -1 ? parts : parts.slice(0, firstClass);
  return [file || `${modules.join("/")}.py`, ...classes].join("::");
}

function idOf({ name, classname, file }: Case, suites: readonly string[]): string {
  if (suites[0]?.startsWith("pytest") === true)
    return classname === "" ? name : `${pytestPath(classname, file)}::${name}`;
  // The JUnit reporter of node:test has the same class for every test.
  if (classname === "" || classname === "test") return [...suites, name].join(" > ");
  return `${classname}.${name}`;
}

/** Reads what `--junitxml` and its like write. Entities of a document are not expanded, and texts are not kept. */
function parseJunit(xml: string): ParsedTests {
  const collector = new TestCollector();
  const suites: string[] = [];
  let current: Case | undefined;
  let finished = false;
  const parser = new SaxesParser({ fragment: false });
  parser.on("opentag", ({ name, attributes }) => {
    const text = (key: string): string => {
      const value = attributes[key];
      return typeof value === "string" ? value : "";
    };
    if (name === "testsuite") suites.push(text("name"));
    else if (name === "testcase") {
      current = { name: text("name"), classname: text("classname"), file: text("file"), status: "passed" };
    } else if (current !== undefined) {
      if (name === "failure") current.status = "failed";
      else if (name === "error") current.status = "error";
      else if (name === "skipped") current.status = text("type") === "pytest.xfail" ? "xfailed" : "skipped";
    }
  });
  parser.on("closetag", ({ name }) => {
    if (name === "testcase" && current !== undefined) {
      collector.set(idOf(current, suites), current.status);
      current = undefined;
    }
    if (name === "testsuite") suites.pop();
    finished ||= name === "testsuites" || name === "testsuite";
  });
  // A file that was cut off has the tests before the cut, and is no end of a run.
  try {
    parser.write(xml).close();
  } catch {
    return { tests: collector.tests, suiteRan: false };
  }
  return { tests: collector.tests, suiteRan: finished };
}

export const looksLikeJunit = (text: string): boolean =>
  /^\s*<(?:\?xml[^>]{0,200}>\s*(?:<!--[^]{0,500}?-->\s*)?<)?testsuites?[\s/>]/.test(text.slice(0, 2000));

export const junitParser: Parser = {
  id: "junit",
  version: 1,
  parse: ({ results, stdout, text }) => parseJunit(results ?? stdout ?? text),
};
