import { parse as parseToml } from "smol-toml";
import { z } from "zod";
import type { RepositoryTree } from "../../repository/repository-tree.ts";
import { compareVersions } from "../python/interpreters.ts";

const Lists = z.record(z.string(), z.array(z.unknown()));
const PyProject = z.looseObject({
  project: z
    .looseObject({
      name: z.string().optional(),
      dependencies: z.array(z.string()).default([]),
      "optional-dependencies": Lists.default({}),
      "requires-python": z.string().optional(),
    })
    .optional()
    .catch(undefined),
  "dependency-groups": Lists.default({}).catch({}),
});

/** Files of requirements that projects keep for their tests. */
const requirementFiles = [
  "requirements.txt",
  "requirements-dev.txt",
  "requirements-test.txt",
  "requirements_test.txt",
  "requirements_test_min.txt",
  "test-requirements.txt",
  "dev-requirements.txt",
  "requirements/tests.txt",
  "requirements/test.txt",
  "requirements/tests.in",
  "requirements/dev.txt",
  "tests/requirements.txt",
];

const testExtra = /^(tests?|testing|dev|develop)$/;

/** The content of pyproject.toml, or `{}` where there is none that can be read. */
export async function readPyProject(tree: RepositoryTree): Promise<Record<string, unknown>> {
  try {
    return parseToml((await tree.read("pyproject.toml")) ?? "");
  } catch {
    // The project's own tools complain about it, if they need it.
    return {};
  }
}

/** Names of distributions that a project and its tests need, from its own files. */
export async function readRequirements(tree: RepositoryTree, python: readonly number[]): Promise<string[]> {
  const lines: string[] = [];
  const { project, "dependency-groups": groups } = PyProject.parse(await readPyProject(tree));
  lines.push(...(project?.dependencies ?? []), ...testLists(project?.["optional-dependencies"] ?? {}));
  lines.push(...testLists(groups));
  lines.push(...configLists((await tree.read("setup.cfg")) ?? ""));
  lines.push(...setupLists((await tree.read("setup.py")) ?? ""));
  for (const path of requirementFiles) lines.push(...((await tree.read(path)) ?? "").split("\n"));
  lines.push(...toxDependencies((await tree.read("tox.ini")) ?? ""));
  return [...new Set(lines.flatMap((line) => requirementName(line, python) ?? []))];
}

const testLists = (lists: z.infer<typeof Lists>): string[] =>
  Object.entries(lists)
    .filter(([name]) => testExtra.test(name))
    .flatMap(([, lines]) => lines.filter((line) => typeof line === "string"));

/** Sections and their keys of an INI file; continued lines belong to their key. */
export function parseIni(text: string): Map<string, Map<string, string>> {
  const sections = new Map<string, Map<string, string>>();
  let section = new Map<string, string>();
  let key = "";
  for (const line of text.split("\n")) {
    const header = /^\[(.+)\]\s*$/.exec(line);
    const pair = /^([A-Za-z][\w.:-]*)\s*[=:]\s*(.*)$/.exec(line);
    if (header !== null) {
      section = new Map();
      sections.set(header[1] ?? "", section);
      key = "";
    } else if (pair !== null) {
      key = pair[1] ?? "";
      section.set(key, pair[2] ?? "");
    } else if (/^\s+\S/.test(line) && key !== "") section.set(key, `${section.get(key) ?? ""}\n${line.trim()}`);
  }
  return sections;
}

function configLists(text: string): string[] {
  const sections = parseIni(text);
  const extras = [...(sections.get("options.extras_require") ?? [])].filter(([name]) => testExtra.test(name));
  const options = sections.get("options");
  const lists = [options?.get("install_requires"), options?.get("tests_require"), ...extras.map(([, lines]) => lines)];
  return lists.flatMap((list) => (list ?? "").split("\n"));
}

/** Literal lists of a setup.py: read, not run. */
function setupLists(text: string): string[] {
  const names = "install_requires|tests_require|requires|test_requirements|INSTALL_REQUIRES|extras_require";
  const lists = new RegExp(`\\b(?:${names})\\s*=\\s*[[{]([^\\]]*)\\]`, "g");
  return [...text.matchAll(lists)].flatMap(([, list]) =>
    [...(list ?? "").matchAll(/['"]([^'"\n]+)['"]/g)].map((match) => match[1] ?? ""),
  );
}

function toxDependencies(text: string): string[] {
  const lines = (parseIni(text).get("testenv")?.get("deps") ?? "").split("\n");
  // `py39: name` holds for one environment of tox; which one runs here is not decided by it.
  return lines.map((line) => line.replace(/^[\w{},!-]+:\s+/, "")).filter((line) => !/[{}]/.test(line));
}

/** The name in a line of requirements, if it holds for this Python and this system. */
export function requirementName(line: string, python: readonly number[]): string | undefined {
  const [requirement = "", marker = ""] = line.replace(/(^|\s)#.*$/, "").split(";");
  const [, name] = /^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(?:[<>=!~@(].*)?$/.exec(requirement) ?? [];
  if (name === undefined || !markerHolds(marker, python)) return undefined;
  return name.toLowerCase();
}

/** Whether an environment marker holds, as far as it speaks of versions and systems; what else it says is left out. */
function markerHolds(marker: string, python: readonly number[]): boolean {
  return marker.split(/\bor\b/).some((part) => part.split(/\band\b/).every((term) => termHolds(term, python)));
}

function termHolds(term: string, python: readonly number[]): boolean {
  const [, name = "", operator = "", value = ""] = /([a-z_]+)\s*([<>=!~]=?=?)\s*['"]([^'"]*)['"]/.exec(term) ?? [];
  const known: Readonly<Record<string, string>> = {
    sys_platform: "linux",
    platform_system: "Linux",
    os_name: "posix",
    platform_python_implementation: "CPython",
    implementation_name: "cpython",
  };
  if (name === "extra") return false;
  const ours = known[name];
  if (ours !== undefined) return operator === "!=" ? ours !== value : ours === value;
  if (name !== "python_version" && name !== "python_full_version") return true;
  return satisfies(python, `${operator}${value}`);
}

/** Whether a version meets a list of conditions such as `>=3.6, <3.11, !=3.7.*`. */
export function satisfies(version: readonly number[], conditions: string): boolean {
  return conditions.split(",").every((condition) => {
    const [, operator = "", text = ""] = /^\s*([<>=!~]=?=?)\s*([\d.]+)/.exec(condition) ?? [];
    if (operator === "") return true;
    const wanted = text
      .split(".")
      .filter((part) => part !== "")
      .map(Number);
    // `3.11.2` does not count as above `3.11`.
    const order = compareVersions(version.slice(0, wanted.length), wanted);
    if (operator === ">=" || operator === "~=") return order >= 0;
    if (operator === "<=") return order <= 0;
    if (operator === ">") return order > 0;
    if (operator === "<") return order < 0;
    return operator === "!=" ? order !== 0 : order === 0;
  });
}
