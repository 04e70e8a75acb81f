import { readFile, stat } from "node:fs/promises";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { parse as parseToml, TomlError } from "smol-toml";
import { isCollection, isPair, isScalar, LineCounter, parseDocument, type Document } from "yaml";
import type { z } from "zod";
import { findJsonError } from "./json-error.ts";

/** A place in a text, counted from 1. */
interface Position {
  line: number;
  column: number;
}

type Path = readonly PropertyKey[];

/** A value that was read from a file and not looked at yet, with where each of its fields is. */
export interface Source {
  /** What the file is called in messages. */
  name: string;
  value: unknown;
  /** Finds a field, or what is around it when it is missing. */
  locate(path: Path): Position;
}

/** More than any data set has; a string of Node ends at 512 MiB. */
const maxFileBytes = 400 * 1024 * 1024;

/** Reads a text file with its line breaks as they are. */
export async function readTextFile(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size > maxFileBytes) {
      throw new SandboxError("unsupported", `Cannot read ${path}: it has ${size} bytes, ${maxFileBytes} at most`, {
        suggestion: "Split it into several files in a folder, and give the folder.",
      });
    }
    const text = await readFile(path, "utf8");
    return text.startsWith("\uFEFF") ? text.slice(1) : text;
  } catch (cause) {
    if (hasErrno(cause, "ENOENT", "ENOTDIR")) {
      throw new SandboxError("not_found", `Cannot read ${path}: there is no such file`, {
        suggestion: "Check the path; it is relative to the current directory.",
        cause,
      });
    }
    if (hasErrno(cause, "EISDIR", "EACCES", "EPERM")) {
      throw new SandboxError("invalid_argument", `Cannot read ${path}: it is no file that you may read`, { cause });
    }
    throw cause;
  }
}

function refuse(name: string, position: Position, problem: string): SandboxError {
  return new SandboxError("invalid_argument", `Cannot read ${name}:${position.line}:${position.column}: ${problem}`, {
    suggestion: "Correct the file there, and try again.",
    details: { file: name, ...position },
  });
}

function positionAt(text: string, offset: number, firstLine: number): Position {
  const before = text.slice(0, offset);
  const lineStart = before.lastIndexOf("\n") + 1;
  return { line: firstLine + before.split("\n").length - 1, column: offset - lineStart + 1 };
}

/** Reads one JSON text. `firstLine` is for a text that is a line of a file. */
export function parseJsonSource(name: string, text: string, firstLine = 1): Source {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    const error = findJsonError(text);
    if (error === undefined) throw cause;
    const found = error.offset >= text.length ? "the text ends" : `there is ${JSON.stringify(text[error.offset])}`;
    throw refuse(name, positionAt(text, error.offset, firstLine), `expected ${error.expected}, but ${found}`);
  }
  // JSON is YAML too. Only a file with a mistake is read a second time, for the place of the mistake.
  return { name, value, locate: (path) => parseYaml(name, text, firstLine).locate(path) };
}

/** With `asText` every scalar is text: a commit such as `12e34567` is no number. */
export const parseYamlSource = (name: string, text: string, asText = false): Source => parseYaml(name, text, 1, asText);

function parseYaml(name: string, text: string, firstLine: number, asText = false): Source {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    schema: asText ? "failsafe" : "core",
  });
  const at = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { line: line + firstLine - 1, column: col };
  };
  const [error] = document.errors;
  if (error !== undefined) throw refuse(name, at(error.pos[0]), error.message);
  return { name, value: document.toJS(), locate: (path) => at(offsetOf(document, path)) };
}

/** The offset of the key of a field, or of the innermost value around it that is there. */
function offsetOf(document: Document, path: Path): number {
  let node: unknown = document.contents;
  let offset = 0;
  for (const key of path) {
    if (!isCollection(node)) break;
    const pair = node.items.find((item) => isPair(item) && isScalar(item.key) && item.key.value === key);
    const next = isPair(pair) ? pair.value : typeof key === "number" ? node.items[key] : undefined;
    if (next === undefined) break;
    const named = isPair(pair) ? pair.key : next;
    offset = rangeOf(named) ?? rangeOf(next) ?? offset;
    node = next;
  }
  return offset;
}

function rangeOf(node: unknown): number | undefined {
  if (typeof node !== "object" || node === null || !("range" in node)) return undefined;
  return Array.isArray(node.range) && typeof node.range[0] === "number" ? node.range[0] : undefined;
}

export function parseTomlSource(name: string, text: string): Source {
  try {
    return { name, value: parseToml(text), locate: (path) => locateInToml(text, path) };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [problem = ""] = error.message.replace(/^Invalid TOML document: /, "").split("\n");
    throw refuse(name, { line: error.line, column: error.column }, problem);
  }
}

/** The last name of a path, behind the heading of its table. */
function locateInToml(text: string, path: Path): Position {
  const names = path.map(String);
  const lines = text.split("\n");
  const heading = lines.findIndex((line) => line.trim().replaceAll(" ", "") === `[${names.slice(0, -1).join(".")}]`);
  const key = names.at(-1) ?? "";
  const found = lines.findIndex((line, index) => index > heading && line.trimStart().split(/[\s=.]/, 1)[0] === key);
  const line = found === -1 ? Math.max(heading, 0) : found;
  const text_ = lines[line] ?? "";
  return { line: line + 1, column: text_.length - text_.trimStart().length + 1 };
}

const mostProblems = 5;

/** Checks a value that was read. A mistake is reported with file, line, column, field and what was expected. */
export function check<T>(schema: z.ZodType<T>, source: Source, at: Path = []): T {
  const result = schema.safeParse(valueAt(source.value, at));
  if (result.success) return result.data;
  const problems = result.error.issues.flatMap((issue) => describe(issue, source, at)).slice(0, mostProblems);
  const [first] = problems;
  const lines = problems.map(({ text, position }) => `${source.name}:${position.line}:${position.column}: ${text}`);
  throw new SandboxError("invalid_argument", `Cannot read ${lines.join("\n  and ")}`, {
    suggestion: first?.suggestion ?? "docs/runner.md has a table of the fields.",
    details: { file: source.name, ...first?.position, field: first?.field ?? "" },
  });
}

interface Problem {
  field: string;
  text: string;
  position: Position;
  suggestion?: string;
}

function valueAt(value: unknown, path: Path): unknown {
  let current = value;
  for (const key of path) {
    if (typeof current !== "object" || current === null) return undefined;
    current = Reflect.get(current, key);
  }
  return current;
}

function describe(issue: z.core.$ZodIssue, source: Source, at: Path): Problem[] {
  const path = [...at, ...issue.path];
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({
      field: fieldName([...path, key]),
      text: `${fieldName([...path, key])}: there is no such field`,
      position: source.locate([...path, key]),
      suggestion: "Look for a slip of the pen; docs/runner.md has a table of the fields.",
    }));
  }
  const field = fieldName(path);
  const value = valueAt(source.value, path);
  const found = value === undefined ? "it is missing" : `it is ${shown(value)}`;
  return [{ field, text: `${field}: expected ${expectation(issue)}, but ${found}`, position: source.locate(path) }];
}

const fieldName = (path: Path): string =>
  path.length === 0
    ? "the document"
    : path
        .map((key, index) => (typeof key === "number" ? `[${key}]` : `${index === 0 ? "" : "."}${String(key)}`))
        .join("");

function shown(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object" && value !== null) return "a map";
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

function expectation(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return typeNames[issue.expected] ?? issue.expected;
    case "invalid_value":
      return issue.values.length === 1
        ? JSON.stringify(issue.values[0])
        : `one of ${issue.values.map((value) => String(value)).join(", ")}`;
    case "too_small":
      return atLeast(issue);
    case "too_big":
      return `at most ${issue.maximum}`;
    case "invalid_union":
      return [...new Set(issue.errors.flatMap((errors) => errors.slice(0, 1).map(expectation)))].join(" or ");
    case "invalid_format":
      return issue.format === "starts_with" ? "an absolute path" : (formats[issue.format] ?? issue.message);
    case "not_multiple_of":
    case "unrecognized_keys":
    case "invalid_key":
    case "invalid_element":
    case "custom":
      return issue.message;
  }
}

function atLeast(issue: z.core.$ZodIssueTooSmall): string {
  if (issue.origin === "string") return "a text that is not empty";
  if (issue.origin === "array") return "a list that is not empty";
  return `at least ${issue.minimum}`;
}

const formats: Readonly<Record<string, string>> = { regex: "a name of letters, digits, '.', '_' and '-'" };

const typeNames: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "a map",
  record: "a map",
};
