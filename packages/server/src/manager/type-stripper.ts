import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import { Turns } from "../support/turns.ts";

/** JavaScript that does the same as the TypeScript program, or the error of the compiler. */
export type StrippedCode = { code: string; hasMap: boolean } | { complaint: string };

/** The time limit. It is ample for the longest program that is accepted; one that is made to take longer is refused. */
const deadlineMs = 10_000;

/** The worker ends after this time without TypeScript, to free its memory. */
const idleMs = 60_000;

/** The most characters of an error, because a program's lines may be of any length. */
const maxComplaintCharacters = 4_000;

/**
 * The program of the worker. It is JavaScript, because a worker is started without the loader of our sources. Types are
 * replaced by blanks, so that every line and column stays; what is more than a type, such as an enum, needs generated
 * code and a source map.
 */
const worker = `
const { parentPort, workerData } = require("node:worker_threads");
const { transformSync } = require(workerData.compiler);
parentPort.on("message", ({ source, filename }) => {
  for (const mode of ["strip-only", "transform"]) {
    try {
      const { code, map } = transformSync(source, { mode, filename, sourceMap: mode === "transform" });
      parentPort.postMessage({ code, map });
      return;
    } catch (error) {
      // The compiler throws a plain object for a bad program. An Error is a failure of the compiler itself, which
      // cannot be used any more.
      if (error instanceof Error) throw error;
      if (error.code === "UnsupportedSyntax" && mode === "strip-only") continue;
      const { message, snippet, startLine } = error;
      parentPort.postMessage({ message, snippet, startLine });
      return;
    }
  }
});
`;

type WorkerAnswer =
  | { code: string; map?: string }
  | { message: string; snippet?: string | undefined; startLine?: number | undefined };

/**
 * Converts TypeScript to JavaScript, for programs in sandboxes whose Node cannot run it. The compiler runs in a thread
 * of its own, so that hostile code cannot harm the server.
 */
export class TypeStripper {
  #worker: Worker | undefined;
  #turns = new Turns();
  #idle: NodeJS.Timeout | undefined;

  /** Converts a program. `path` is its place in stack traces. */
  async strip(source: string, path: string): Promise<StrippedCode> {
    const answer = await this.#turns.take(() => this.#ask(source, path));
    if (!("code" in answer)) return { complaint: complaint(path, answer) };
    const { code, map } = answer;
    if (map === undefined) return { code: `${code}\n//# sourceURL=${path}\n`, hasMap: false };
    const inline = Buffer.from(map).toString("base64");
    return { code: `${code}\n//# sourceMappingURL=data:application/json;base64,${inline}\n`, hasMap: true };
  }

  async close(): Promise<void> {
    clearTimeout(this.#idle);
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
  }

  async #ask(source: string, filename: string): Promise<WorkerAnswer> {
    clearTimeout(this.#idle);
    this.#worker ??= startWorker();
    try {
      return await answerOf(this.#worker, { source, filename });
    } catch {
      await this.close();
      return { message: "The program is nested too deeply to be read" };
    } finally {
      this.#idle = setTimeout(() => void this.close(), idleMs);
      this.#idle.unref();
    }
  }
}

function startWorker(): Worker {
  const require = createRequire(import.meta.url);
  const started = new Worker(worker, {
    eval: true,
    workerData: { compiler: require.resolve("@swc/wasm-typescript") },
    execArgv: [],
    env: {},
    stderr: true,
    resourceLimits: { maxOldGenerationSizeMb: 256 },
  });
  started.unref();
  // A caller that waits for a reply gets the error; between two calls there is none.
  started.on("error", () => undefined);
  return started;
}

function answerOf(worker: Worker, request: { source: string; filename: string }): Promise<WorkerAnswer> {
  return new Promise((resolve, reject) => {
    const fail = (): void => settle(() => reject(new Error("The compiler failed")));
    const answer = (message: WorkerAnswer): void => settle(() => resolve(message));
    const deadline = setTimeout(fail, deadlineMs);
    const settle = (then: () => void): void => {
      clearTimeout(deadline);
      worker.off("message", answer).off("error", fail).off("exit", fail);
      then();
    };
    worker.on("message", answer).on("error", fail).on("exit", fail);
    worker.postMessage(request, []);
  });
}

/** Formats an error as Node does for a program that it cannot parse. */
function complaint(path: string, { message, snippet, startLine }: Exclude<WorkerAnswer, { code: string }>): string {
  const where = startLine === undefined ? path : `${path}:${startLine}`;
  const shown = snippet === undefined || snippet.length > maxComplaintCharacters ? [] : [snippet.trimEnd()];
  const said = message.slice(0, maxComplaintCharacters).replaceAll("\0", "");
  return [where, ...shown, "", `SyntaxError: ${said}`, ""].join("\n");
}
