import * as modules from "node:module";
import type { ImportRules } from "@atoll/guard";
import { packageHooks } from "./package-hooks.ts";

/** The parts of the module loader that Node has and its types do not. */
interface Loader {
  _load: (this: Loader, request: string, parent: unknown, isMain: boolean) => unknown;
  registerHooks?: (hooks: object) => void;
}

/** What is reported of each refusal, at most once per name. */
export type OnDenied = (what: string, why: string) => void;

/** More names than these are not reported: an app may make up any number. */
const maxReports = 200;

/** A module or a function that the security profile of the app does not allow. */
export class AccessDenied extends Error {
  override readonly name = "AccessDenied";
  readonly code = "permission_denied";
  readonly profile: string;
  readonly suggestion: string;

  constructor(what: string, why: string, profile: string) {
    const suggestion = "Leave it out, or run the app under a profile that allows it (`profile` in live.json).";
    super(`Cannot ${what}: ${why}. ${suggestion}`);
    this.profile = profile;
    this.suggestion = suggestion;
  }
}

/** Functions of the process that reach beyond the app, with the operation that they need. */
const processFunctions = {
  start_process: ["kill", "_kill", "_debugProcess", "_debugEnd", "_startProfilerIdleNotifier", "execve"],
  file_read: ["loadEnvFile"],
} as const;
/** These lead past all rules, so that they need every operation. */
const internals = ["binding", "_linkedBinding", "dlopen"];
const loaderFunctions = ["register", "registerHooks", "enableCompileCache", "runMain", "setSourceMapsSupport"];
const networkGlobals = ["fetch", "WebSocket", "EventSource"];

/**
 * Keeps an app to the modules of Node that its profile allows: at `import`, `import()`, `require`, `createRequire` and
 * `process.getBuiltinModule`, of the app and of its packages. It stops mistakes and honest packages; code that wants to
 * get around it is stopped by the isolation of the process.
 */
export class ImportGuard {
  readonly #rules: ImportRules;
  readonly #onDenied: OnDenied;
  readonly #reported = new Set<string>();
  #hooks: Promise<void> | undefined;

  constructor(rules: ImportRules, onDenied: OnDenied) {
    this.#rules = rules;
    this.#onDenied = onDenied;
  }

  /** Throws `AccessDenied` for a module of Node or a package that may not be imported. */
  check(specifier: string): void {
    const why = whyDenied(this.#rules, specifier, modules.isBuiltin(specifier));
    if (why !== undefined) throw this.#denied(`import ${specifier}`, why);
  }

  /** Has to run before any code of the app, and cannot be undone. */
  install(): void {
    // What comes after must not be seen by the hooks, which are registered when the first package is imported.
    const { register } = modules;
    this.#hooks = undefined;
    this.#registerHooks = () => {
      const loader = this.#loader;
      const hooks = loader.registerHooks;
      if (hooks === undefined) {
        register(`data:text/javascript,${encodeURIComponent(packageHooks)}`, { data: this.#rules });
        return;
      }
      hooks({
        resolve: (specifier: string, context: unknown, next: (specifier: string, context: unknown) => object) => {
          this.check(specifier);
          return next(specifier, context);
        },
      });
    };
    this.#guardLoader();
    for (const [name, functions] of Object.entries(this.#rules.functions)) this.#guardFunctions(name, functions);
    this.#guardProcess();
    if (this.#rules.lacking.includes("network_client")) {
      for (const name of networkGlobals) {
        if (name in globalThis) this.#replace(globalThis, name, name, "it needs the operation network_client");
      }
    }
    modules.syncBuiltinESMExports();
  }

  /** Has the packages of the app follow the rules, too. It costs a thread in older versions of Node. */
  async guardPackages(): Promise<void> {
    this.#hooks ??= (async () => this.#registerHooks())();
    await this.#hooks;
  }

  #registerHooks: () => void = () => undefined;

  get #loader(): Loader {
    return (modules as unknown as { default: Loader }).default;
  }

  #guardLoader(): void {
    const loader = this.#loader;
    const load = loader._load;
    fix(loader, "_load", (request: string, parent: unknown, isMain: boolean) => {
      this.check(request);
      return load.call(loader, request, parent, isMain);
    });
    const { getBuiltinModule } = process as { getBuiltinModule?: (name: string) => unknown };
    if (getBuiltinModule !== undefined) {
      fix(process, "getBuiltinModule", (name: string) => {
        this.check(name);
        return getBuiltinModule(name);
      });
    }
    for (const name of loaderFunctions) {
      if (name in loader) this.#replace(loader, name, `module.${name}`, "it changes how modules are loaded");
    }
  }

  #guardFunctions(name: string, functions: Readonly<Record<string, string>>): void {
    const target = load(name);
    for (const [key, operation] of Object.entries(functions)) {
      if (key in target) this.#replace(target, key, `${name}.${key}`, `it needs the operation ${operation}`);
    }
    // Reading needs `open`, and writing begins with it.
    if (!name.startsWith("fs") || !this.#rules.lacking.includes("file_write")) return;
    for (const key of ["open", "openSync"]) {
      const open = target[key];
      if (typeof open !== "function") continue;
      fix(target, key, (path: unknown, flags?: unknown, ...rest: unknown[]) => {
        if (isReadOnly(flags)) return open.call(target, path, flags, ...rest) as unknown;
        throw this.#denied(`call ${name}.${key} to write`, "it needs the operation file_write");
      });
    }
  }

  #guardProcess(): void {
    const { lacking } = this.#rules;
    for (const [operation, names] of Object.entries(processFunctions)) {
      if (!(lacking as readonly string[]).includes(operation)) continue;
      for (const name of names) {
        if (name in process) this.#replace(process, name, `process.${name}`, `it needs the operation ${operation}`);
      }
    }
    if (lacking.length === 0) return;
    for (const name of internals) {
      if (name in process) this.#replace(process, name, `process.${name}`, "it reaches the internals of Node");
    }
    this.#replace(load("crypto"), "setEngine", "crypto.setEngine", "it loads native code");
  }

  #replace(target: object, key: string, name: string, why: string): void {
    const denied = (): AccessDenied => this.#denied(`call ${name}`, why);
    // No arrow function, so that `new` fails in the same way.
    fix(target, key, function () {
      throw denied();
    });
  }

  #denied(what: string, why: string): AccessDenied {
    const { profile } = this.#rules;
    const reason = why.includes("profile") ? why : `${why}, which the profile ${profile} does not allow`;
    if (!this.#reported.has(what) && this.#reported.size < maxReports) {
      this.#reported.add(what);
      this.#onDenied(what.slice(0, 300), reason);
    }
    return new AccessDenied(what.slice(0, 300), reason, profile);
  }
}

/** Why a specifier may not be imported, or `undefined`. */
function whyDenied(rules: ImportRules, specifier: string, isBuiltin: boolean): string | undefined {
  if (!isBuiltin) {
    const restricted = rules.packages.find((name) => specifier === name || specifier.startsWith(`${name}/`));
    return restricted === undefined
      ? undefined
      : `${restricted} is a restricted module under the profile ${rules.profile}`;
  }
  const name = specifier.replace(/^node:/, "");
  if (Object.hasOwn(rules.modules, name)) return rules.modules[name];
  return rules.known.includes(name) ? undefined : (rules.others ?? undefined);
}

const load = (name: string): Record<string, unknown> =>
  modules.createRequire(import.meta.url)(`node:${name}`) as Record<string, unknown>;

/** Replaces a property so that the app cannot put the old one back. */
function fix(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, writable: false, configurable: false, enumerable: true });
}

function isReadOnly(flags: unknown): boolean {
  // The lowest two bits of a number are the access mode; creating and truncating change files, too.
  if (typeof flags === "number") return (flags & 0o1_103) === 0;
  return flags === undefined || typeof flags === "function" || flags === "r" || flags === "rs" || flags === "sr";
}
