import { allowsOperation, Operation, type SecurityProfile } from "@atoll/protocol";
import { decide, type Decision } from "../controller/decide.ts";
import { builtinName, functionsOf, knownModules, operationsOf } from "./builtin-modules.ts";

/** Decides whether an app may import a module of Node, or a package, by its specifier. */
export function decideImport(profile: SecurityProfile, specifier: string): Decision {
  const name = builtinName(specifier);
  if (name === undefined) {
    const byPath = decide({ operation: "import", profile, module: specifier });
    return byPath.allowed ? decide({ operation: "import", profile, module: packageName(specifier) }) : byPath;
  }
  // A profile may list a module of Node with its prefix or without.
  const module = profile.restrictedModules.includes(name) ? name : `node:${name}`;
  return decide({ operation: "import", profile, module, needs: lackingOperation(name, profile) });
}

const packageName = (specifier: string): string =>
  specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");

/** What a profile means for the imports of an app, as plain data for the process that the app runs in. */
export interface ImportRules {
  profile: string;
  /** Why a module of Node cannot be imported, by its name without `node:`. */
  modules: Record<string, string>;
  /** All modules of Node that these rules know. */
  known: string[];
  /** The same as in `modules` for those that they do not know, such as those of a later Node. */
  others: string | null;
  /** Packages that the profile restricts. */
  packages: string[];
  /** Functions of modules that can be imported but not called, with the operation that each needs. */
  functions: Record<string, Record<string, Operation>>;
  /** Operations that the profile does not allow. */
  lacking: Operation[];
}

/** The rules of a profile; `undefined` for one that restricts nothing. */
export function importRules(profile: SecurityProfile): ImportRules | undefined {
  const lacking = Operation.options.filter((operation) => !allowsOperation(profile, operation));
  if (lacking.length === 0 && profile.restrictedModules.length === 0) return undefined;
  const rules: ImportRules = {
    profile: profile.name,
    modules: {},
    known: [...knownModules],
    others: null,
    packages: profile.restrictedModules.filter((module) => builtinName(module) === undefined),
    functions: {},
    lacking,
  };
  const unknown = decideImport(profile, "node:_unknown");
  if (!unknown.allowed) rules.others = unknown.why.replace("node:_unknown", "a module that this version does not know");
  for (const name of knownModules) {
    const decision = decideImport(profile, `node:${name}`);
    if (!decision.allowed) rules.modules[name] = decision.why;
    const functions = deniedFunctions(name, profile);
    if (decision.allowed && Object.keys(functions).length > 0) rules.functions[name] = functions;
  }
  return rules;
}

/**
 * The operation that a profile would have to allow before the module can be imported; `undefined` if it can be. One
 * with a table of functions needs one of its operations, others need all.
 */
function lackingOperation(name: string, profile: SecurityProfile): Operation | undefined {
  const operations = operationsOf(name);
  const lacking = operations.filter((operation) => !allowsOperation(profile, operation));
  const isSplit = functionsOf(name) !== undefined;
  return isSplit && lacking.length < operations.length ? undefined : lacking[0];
}

/** The functions of a module that may be imported, but not called, with the operation that each needs. */
function deniedFunctions(name: string, profile: SecurityProfile): Record<string, Operation> {
  const denied: Record<string, Operation> = {};
  for (const operation of operationsOf(name)) {
    if (allowsOperation(profile, operation)) continue;
    for (const each of functionsOf(name)?.[operation] ?? []) denied[each] = operation;
  }
  return denied;
}
