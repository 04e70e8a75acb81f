import { doctor, findLeftoversIn, formatDoctor } from "@atoll/engine";
import { isSandboxError } from "@atoll/protocol";
import { usage } from "./config/flags.ts";
import { readConfig } from "./config/read-config.ts";
import { Server } from "./server.ts";
import { createLog } from "./telemetry/log.ts";

/** Starts the server and stays until a signal comes. Stdout is for people, stderr for the log. */
async function main(): Promise<void> {
  const words = process.argv.slice(2);
  if (words.includes("--help")) return say(usage());
  if (words.includes("--doctor")) return examine(words);
  const config = await readConfig();
  const log = createLog(config.config.logLevel);
  // This is a bug in the server, but no reason to end the streams of all clients.
  process.on("unhandledRejection", (error) => log.error({ err: error }, "unhandled promise rejection"));
  const server = await Server.start({ config, log });
  log.info({ url: server.url, dataDir: config.config.dataDir, sandboxes: server.sandboxCount }, "server started");
  greet(server);
  await untilAsked();
  const { killOnExit, pauseOnExit } = config.config;
  log.info({ killOnExit, pauseOnExit }, "server stopping");
  await server.close();
  log.info({}, "server stopped");
}

/** Reports what this machine offers and what it lacks, for people or, with `--json`, for programs. */
async function examine(words: readonly string[]): Promise<void> {
  const { config } = await readConfig({ argv: words.filter((word) => word !== "--doctor" && word !== "--json") });
  const { guestPath, dataDir } = config;
  const report = await doctor({ guestPath, dataDir, findLeftovers: () => findLeftoversIn(dataDir) });
  say(words.includes("--json") ? JSON.stringify(report) : formatDoctor(report));
  if (report.findings.some(({ status }) => status === "missing")) process.exitCode = 1;
}

function greet({ url, firstKey, sandboxCount }: Server): void {
  const key = firstKey ?? "$ATOLL_API_KEY";
  say(`Atoll listens on ${url}`);
  if (sandboxCount > 0) say(`Continues ${sandboxCount} ${sandboxCount === 1 ? "sandbox" : "sandboxes"}.`);
  if (firstKey !== undefined) {
    say(`\nThis is the admin key. It is shown once and stored only as a hash:\n\n  export ATOLL_API_KEY=${firstKey}`);
  }
  say(`
Try it:

  curl -s ${url}/run -H "Authorization: Bearer ${firstKey === undefined ? key : "$ATOLL_API_KEY"}" \\
       -H "Content-Type: application/json" -d '{"language":"python","code":"print(6 * 7)"}'

Documentation: ${url}/docs
`);
}

/** The time within which two signals count as one: npm passes on a Ctrl-C that the terminal has already sent. */
const sameSignalMs = 500;

/** Resolves at the first signal, which asks the server to stop. A second one ends the process at once. */
function untilAsked(): Promise<void> {
  return new Promise((resolve) => {
    let askedAtMs: number | undefined;
    const ask = (): void => {
      if (askedAtMs !== undefined && performance.now() - askedAtMs > sameSignalMs) process.exit(130);
      askedAtMs ??= performance.now();
      resolve();
    };
    process.on("SIGTERM", ask);
    process.on("SIGINT", ask);
  });
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

try {
  await main();
} catch (error) {
  const text = isSandboxError(error) ? `${error.message}\n${error.suggestion ?? ""}` : String((error as Error).stack);
  process.stderr.write(`${text.trim()}\n`);
  // A wrong command line has the usual exit code 2.
  process.exitCode = isSandboxError(error, "invalid_argument") ? 2 : 1;
}
