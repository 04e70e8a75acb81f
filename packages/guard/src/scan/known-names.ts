import { operationsOf } from "../capabilities/builtin-modules.ts";
import type { Finding } from "./finding.ts";

/** What a finding says beside its place. */
export type Verdict = Pick<Finding, "severity" | "rule" | "why" | "fix">;

const verdict = (
  severity: Finding["severity"],
  rule: Finding["rule"],
  why: string,
  fix: string,
): Readonly<Verdict> => ({ severity, rule, why, fix });

const parse = "Parse the input instead, for example with JSON.parse, or choose among functions by name.";
const ownService = "Do it outside of the app, and give the app the result; or choose a profile that allows it.";
const noInternals = "Use the public modules of Node.";

export const dynamicCode = verdict("high", "dynamic_code", "it runs text as code, which no scan can see", parse);
export const textTimer = verdict("high", "dynamic_code", "a timer with text runs it as code", "Pass a function.");
export const computedImport = verdict(
  "medium",
  "dynamic_code",
  "it loads a module whose name is computed, so that the scan does not know which",
  "Write the name as text, or choose from a table of imports.",
);
export const prototypeEscape = verdict(
  "high",
  "prototype_escape",
  "through the constructor of a function, any text can become code",
  `Use the class itself instead of \`constructor\`. ${parse}`,
);
export const constructorTaken = verdict(
  "medium",
  "prototype_escape",
  "it takes `constructor` from an object; that of a function makes code out of text",
  "Import the class instead of taking it from an object.",
);
export const prototypeRead = verdict(
  "medium",
  "prototype_escape",
  "`__proto__` reaches objects that all code of the process shares",
  "Use Object.getPrototypeOf, or an object without a prototype: Object.create(null).",
);
export const prototypeChange = verdict(
  "high",
  "prototype_escape",
  "it changes what all code of the process shares",
  "Make a class of your own, or write a function.",
);
export const computedAccess = verdict(
  "medium",
  "computed_access",
  "which global it uses is computed, so that the scan does not know",
  "Write the name.",
);
export const endlessLoop = verdict(
  "medium",
  "endless_loop",
  "the loop has no end; the app cannot answer until it is killed",
  "Give it an end, or use `context.every`.",
);
export const slowExpression = verdict(
  "medium",
  "slow_expression",
  "the time that this expression takes doubles with every character of a text that nearly matches",
  "Do not repeat a group that consists of something repeated: (a+)+ matches what a+ matches.",
);

/** Uses of global names, by their path without `globalThis`. */
export const globals: ReadonlyMap<string, Verdict> = new Map([
  ["eval", dynamicCode],
  ["process.binding", verdict("critical", "native_code", "it reaches the internals of Node", noInternals)],
  ["process._linkedBinding", verdict("critical", "native_code", "it reaches the internals of Node", noInternals)],
  ["process.dlopen", verdict("critical", "native_code", "it loads native code", noInternals)],
  ["process.execve", verdict("high", "start_process", "it replaces the process by another program", ownService)],
  ["process.kill", verdict("high", "start_process", "it sends signals to other processes", ownService)],
  ["process._debugProcess", verdict("high", "start_process", "it sends signals to other processes", ownService)],
  ["process.mainModule", verdict("high", "module_loading", "it reaches `require` of the program", "Import by name.")],
  ["process.loadEnvFile", verdict("medium", "file_access", "it reads a file", ownService)],
  ["process.env", verdict("low", "environment", "it reads the variables of the process", "Pass the value to the app.")],
  ["Deno", verdict("low", "environment", "it looks for another runtime", "Use the modules of Node.")],
  ...["fetch", "WebSocket", "EventSource", "XMLHttpRequest"].map((name): [string, Verdict] => [
    name,
    verdict("medium", "network_access", "it opens connections", ownService),
  ]),
  ...["compile", "compileStreaming", "instantiate", "instantiateStreaming", "Module"].map((name): [string, Verdict] => [
    `WebAssembly.${name}`,
    verdict("medium", "dynamic_code", "it runs machine code that no scan can see", "Use JavaScript."),
  ]),
]);

/** The names of variables that are worth following. */
export const roots: ReadonlySet<string> = new Set([
  ...[...globals.keys()].map((path) => path.split(".")[0] ?? path),
  ..."globalThis global self Function require setTimeout setInterval setImmediate Object Reflect".split(" "),
  ..."Array String Number Boolean Promise RegExp Error Map Set Symbol module exports".split(" "),
]);

/** Objects whose prototypes all code shares. */
export const sharedClasses: ReadonlySet<string> = new Set(
  "Object Function Array String Number Boolean Promise RegExp Error Map Set Symbol".split(" "),
);

/** What importing a module of Node lets code do; `undefined` for one that only computes. */
export function importVerdict(name: string): Verdict | undefined {
  const why = (what: string): string => `\`node:${name}\` ${what}`;
  if (name === "worker_threads") {
    return verdict("high", "threads", why("starts threads, in which the rules of the app do not hold"), ownService);
  }
  if (name === "module") {
    return verdict("medium", "module_loading", why("loads modules past the compiler"), "Use import.");
  }
  const operations = operationsOf(name);
  const has = (operation: (typeof operations)[number]): boolean => operations.includes(operation);
  if (has("dynamic_code")) return verdict("high", "dynamic_code", why("makes code at run time"), parse);
  if (has("start_process")) return verdict("high", "start_process", why("starts programs"), ownService);
  if (has("file_read")) return verdict("medium", "file_access", why("reads and writes files"), ownService);
  if (has("network_client")) return verdict("medium", "network_access", why("uses the network"), ownService);
  return undefined;
}

export const nativeModule = verdict(
  "critical",
  "native_code",
  "it loads native code, for which no rule of the app holds",
  "Use a package of JavaScript or WebAssembly.",
);
