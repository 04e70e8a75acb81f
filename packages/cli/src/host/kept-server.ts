import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { open, type FileHandle } from "node:fs/promises";
import { createInterface } from "node:readline";
import { SandboxError } from "@atoll/protocol";
import { serverProgram } from "./server-program.ts";

export interface KeptServerOptions {
  dataDir: string;
  /** Settings that replace those of the machine's own server. */
  configPath: string;
  logPath: string;
  /** 0: a free one. */
  port: number;
}

/** A server of which this process is the parent. It ends with this process, however that ends. */
export interface KeptServer {
  url: string;
  port: number;
  /** The admin key, at the first start on a data directory only. */
  firstKey: string | undefined;
  ended: Promise<void>;
  /** Stops it, and every sandbox with it. */
  stop(): Promise<void>;
}

const privateFlags = ["--kill-on-exit", "--stop-timeout-ms", "2000", "--log-level", "warn"];

/** For a server that has sandboxes to continue, on a busy machine. */
const startTimeoutMs = 5 * 60_000;

/** Enough to see why a start has failed. */
const mostErrorCharacters = 16 * 1024;

/** Resolves when the server takes work. Rejects with `in_use` when another server has the data directory. */
export async function startKeptServer(options: KeptServerOptions): Promise<KeptServer> {
  const { dataDir, configPath, logPath, port } = options;
  const where = ["--data-dir", dataDir, "--config", configPath, "--port", String(port), "--host", "127.0.0.1"];
  const { file, args } = serverProgram([...where, ...privateFlags]);
  const log = await open(logPath, "a", 0o600);
  // The kernel sends the signal when this process is gone, also when it had no time to do so itself.
  const child = spawn("setpriv", ["--pdeathsig", "TERM", "--", file, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: environmentOfServer(),
    detached: true,
  });
  const ended = endOf(child, log);
  ended.catch(() => undefined);
  const greeting = await readGreeting(child, (text) => void log.appendFile(text).catch(() => undefined));
  const url = /listens on (\S+)/.exec(greeting)?.[1] ?? "";
  return {
    url,
    port: Number(new URL(url).port),
    firstKey: /ATOLL_API_KEY=(atk_\S+)/.exec(greeting)?.[1],
    ended,
    stop: async () => {
      child.kill("SIGTERM");
      await ended;
    },
  };
}

async function endOf(child: ChildProcess, log: FileHandle): Promise<void> {
  try {
    await once(child, "exit");
  } finally {
    await log.close();
  }
}

/** Settings of the machine's own server are not those of a private one. */
function environmentOfServer(): NodeJS.ProcessEnv {
  // oxlint-disable-next-line node/no-process-env -- the environment of a child is made of our own
  const own = Object.entries(process.env);
  return Object.fromEntries(own.filter(([name]) => !name.startsWith("ATOLL_") || name === "ATOLL_CACHE_DIR"));
}

/** What the server prints until it takes work. Its log goes on to `log`. */
async function readGreeting(child: ChildProcess, log: (text: string) => void): Promise<string> {
  const { stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new Error("The server has no output");
  let errors = "";
  stderr.on("data", (data: Buffer) => {
    log(data.toString());
    errors = (errors + data.toString()).slice(-mostErrorCharacters);
  });
  const failed = once(child, "error").then(([error]) => {
    throw error;
  });
  failed.catch(() => undefined);
  const read = async (): Promise<string> => {
    let text = "";
    const lines = createInterface({ input: stdout });
    for await (const line of lines) {
      text += `${line}\n`;
      // The address of its documentation is the last that a server prints for people.
      if (!/https?:\/\/\S+\/docs$/.test(line)) continue;
      stdout.resume();
      return text;
    }
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    throw startFailure(errors);
  };
  const late = setTimeout(() => child.kill("SIGKILL"), startTimeoutMs);
  try {
    return await Promise.race([read(), failed]);
  } finally {
    clearTimeout(late);
  }
}

function startFailure(errors: string): SandboxError {
  const words = errors
    .trim()
    .split("\n")
    .filter((line) => !line.startsWith("{"));
  const [message = "it ended", suggestion] = words;
  const isInUse = /process \S+ uses it/.test(message);
  return new SandboxError(isInUse ? "in_use" : "start_failed", `Cannot start a private server: ${message}`, {
    suggestion: suggestion ?? `"atoll doctor" says what this machine lacks.`,
  });
}
