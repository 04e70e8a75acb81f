import type { Operation } from "@atoll/protocol";

interface BuiltinModule {
  /** The operations that the module gives its importer. None: it only computes. */
  operations: readonly Operation[];
  /**
   * For a module that serves several operations, which of its functions belong to which. It can be imported if one of
   * its operations is allowed; functions of the others are refused when they are called.
   */
  functions?: Partial<Record<Operation, readonly string[]>>;
}

const compute = (names: string): [string, BuiltinModule][] =>
  names.split(" ").map((name) => [name, { operations: [] }]);
const needs = (operations: readonly Operation[], names: string): [string, BuiltinModule][] =>
  names.split(" ").map((name) => [name, { operations }]);

const withSync = (names: string): string[] => names.split(" ").flatMap((name) => [name, `${name}Sync`]);
const changes =
  "appendFile chmod chown copyFile cp fchmod fchown fdatasync fsync ftruncate futimes lchmod lchown link lutimes " +
  "mkdir mkdtemp rename rm rmdir symlink truncate unlink utimes write writeFile writev";
const reads =
  "access exists fstat glob lstat opendir openAsBlob read readFile readdir readlink readv realpath stat statfs watch";

const files: BuiltinModule = {
  operations: ["file_read", "file_write"],
  functions: {
    file_write: [...withSync(changes), "createWriteStream", "WriteStream", "FileWriteStream", "mkdtempDisposableSync"],
    file_read: [...withSync(reads), "createReadStream", "ReadStream", "FileReadStream", "watchFile"],
  },
};

const connections = (client: string, server: string): BuiltinModule => ({
  operations: ["network_client", "network_server"],
  functions: { network_client: client.split(" "), network_server: server.split(" ") },
});

/** Everything: such a module gives code a place where none of these rules hold. */
const everything: readonly Operation[] = [
  "file_read",
  "file_write",
  "network_client",
  "network_server",
  "start_process",
  "dynamic_code",
];

/** What each module of Node lets its importer do, by its name without `node:`. */
const modules: ReadonlyMap<string, BuiltinModule> = new Map<string, BuiltinModule>([
  ...compute("assert assert/strict async_hooks buffer console constants crypto diagnostics_channel domain events os"),
  ...compute("path path/posix path/win32 perf_hooks process punycode querystring readline readline/promises stream"),
  ...compute("stream/consumers stream/promises stream/web string_decoder sys test/reporters timers timers/promises"),
  ...compute("tty url util util/types zlib module"),
  ["fs", files],
  ["fs/promises", files],
  ["net", connections("connect createConnection Socket Stream", "createServer Server")],
  ["http", connections("request get ClientRequest Agent WebSocket", "createServer Server")],
  ["https", connections("request get Agent", "createServer Server")],
  ["http2", connections("connect", "createServer createSecureServer")],
  ["tls", connections("connect TLSSocket", "createServer Server")],
  ...needs(["network_client", "network_server"], "dgram quic"),
  ...needs(["network_client"], "dns dns/promises"),
  ...needs(["start_process"], "child_process cluster"),
  ...needs(["dynamic_code"], "vm v8"),
  ...needs(["file_read", "file_write"], "sqlite sea trace_events"),
  ...needs(everything, "worker_threads inspector inspector/promises repl wasi test ffi"),
]);

/** The name of a module of Node without `node:`, or `undefined` for a specifier that is none. */
export function builtinName(specifier: string): string | undefined {
  if (specifier.startsWith("node:")) return specifier.slice("node:".length);
  // Names of packages cannot begin with an underscore; internal modules of Node do.
  return modules.has(specifier) || /^_\w+$/.test(specifier) ? specifier : undefined;
}

/** What a module of Node lets its importer do. One that is not known may do everything. */
export const operationsOf = (name: string): readonly Operation[] => modules.get(name)?.operations ?? everything;

/** The functions of a module that belong to one of its operations; `undefined` if they are not kept apart. */
export const functionsOf = (name: string): BuiltinModule["functions"] => modules.get(name)?.functions;

/** The modules of Node that are known here. */
export const knownModules: readonly string[] = [...modules.keys()];
