import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createLog, readConfig, Server } from "@atoll/server";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { copyHostScan } from "./host-scan.ts";
import { makeDataDir } from "./test-root.ts";

/** Users start the server by this entry, too: it runs the bundle if that was built from the present sources. */
const program = fileURLToPath(new URL("../../packages/server/bin/atoll-server.mjs", import.meta.url));

export interface TestServerOptions {
  /** A directory that another server has used. The caller that made it also disposes of it. */
  dataDir?: string;
  /** Flags of the program, as in `["--body-timeout-ms", "500"]`. */
  flags?: readonly string[];
}

/**
 * A server on a new data directory and a free port. `dispose` kills every sandbox and removes the directory.
 */
export interface TestServer extends AsyncDisposable {
  url: string;
  /** The admin key; empty if an earlier server on the same directory has printed it. */
  key: string;
  dataDir: string;
  /** Stops the server; its sandboxes run on. */
  stop(): Promise<void>;
  dispose(): Promise<void>;
}

async function flagsFor({ dataDir, flags = [] }: TestServerOptions): Promise<{ dataDir: string; argv: string[] }> {
  const dir = dataDir ?? (await makeDataDir());
  copyHostScan(dir);
  const argv = ["--data-dir", dir, "--guest-path", guestBinaryPath(), "--port", "0", "--stop-timeout-ms", "2000"];
  const quiet = flags.includes("--log-level") ? [] : ["--log-level", "error"];
  const policy = flags.includes("--policy") ? [] : ["--policy", JSON.stringify({ drivers: ["gvisor", "local"] })];
  return { dataDir: dir, argv: [...argv, ...quiet, ...policy, ...flags] };
}

/** Starts a server in this process. */
export async function startTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  const { dataDir, argv } = await flagsFor(options);
  const server = await start(argv).catch(async (error: unknown) => {
    if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
    throw error;
  });
  const dispose = async (): Promise<void> => {
    await server.close({ killAll: true });
    await rm(dataDir, { recursive: true, force: true });
  };
  return {
    url: server.url,
    key: server.firstKey ?? "",
    dataDir,
    stop: () => server.close({ killAll: false }),
    dispose,
    [Symbol.asyncDispose]: dispose,
  };
}

async function start(argv: string[]): Promise<Server> {
  const config = await readConfig({ argv, env: {} });
  return Server.start({ config, log: createLog(config.config.logLevel) });
}

/** A server in a separate process, which a test can also kill with SIGKILL. */
export interface TestServerProcess extends TestServer {
  pid: number;
  signal(name: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  /** The text that the server printed on stdout at its start. */
  greeting: string;
}

export async function startTestServerProcess(options: TestServerOptions = {}): Promise<TestServerProcess> {
  const { dataDir, argv } = await flagsFor(options);
  const child = spawn(process.execPath, [program, ...argv], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const greeting = await readGreeting(child).catch(async (error: unknown) => {
    if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
    throw error;
  });
  const end = async (name: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }> => {
    if (child.exitCode === null && child.signalCode === null) {
      const gone = once(child, "exit");
      child.kill(name);
      await gone;
    }
    return { code: child.exitCode, signal: child.signalCode };
  };
  const dispose = async (): Promise<void> => {
    await end("SIGTERM");
    // Another server finds and ends everything that this one left behind.
    const next = await startTestServer({ ...options, dataDir });
    await next.dispose();
  };
  return {
    url: /listens on (\S+)/.exec(greeting)?.[1] ?? "",
    key: /ATOLL_API_KEY=(atk_\S+)/.exec(greeting)?.[1] ?? "",
    greeting,
    dataDir,
    pid: child.pid ?? 0,
    signal: end,
    stop: async () => void (await end("SIGTERM")),
    dispose,
    [Symbol.asyncDispose]: dispose,
  };
}

async function readGreeting(child: ChildProcess): Promise<string> {
  const { stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new Error("The server has no output");
  let errors = "";
  stderr.on("data", (data: Buffer) => {
    errors += data.toString();
  });
  let text = "";
  for await (const line of createInterface({ input: stdout })) {
    text += `${line}\n`;
    if (line.startsWith("Documentation:")) return text;
  }
  throw new Error(`The server ended: ${errors}`);
}
