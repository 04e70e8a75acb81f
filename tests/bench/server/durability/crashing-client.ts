import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { hostEnvironment } from "../../host-command.ts";
import { payloadOf, type Plan } from "./plan.ts";
import type { Fact, Outcome } from "./work.ts";

const program = fileURLToPath(new URL("client-program.ts", import.meta.url));

type Line = Fact & { isReady?: true; outcome?: { exitCode?: number | null; outputBytes?: number } };

/**
 * A client in a separate process. What the client knows is lost when it is killed; what it has printed until then is
 * kept here.
 */
export class CrashingClient {
  readonly known: Fact = {};
  #plan: Plan;
  #child: ChildProcessByStdio<Writable, Readable, Readable>;
  #lines: AsyncIterator<string>;
  #stderr = "";
  #isKilled = false;

  constructor(server: { url: string; key: string }, sandboxId: string, plan: Plan) {
    this.#plan = plan;
    const words = [server.url, server.key, sandboxId, JSON.stringify(plan)];
    this.#child = spawn(process.execPath, ["--conditions=source", "--import", "tsx", program, ...words], {
      env: hostEnvironment,
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
    });
    this.#child.stdin.on("error", () => undefined);
    this.#child.stderr.on("data", (data: Buffer) => {
      this.#stderr += data.toString();
    });
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  async ready(): Promise<void> {
    const line = await this.#next();
    if (line?.isReady !== true) throw new Error(`A client did not start: ${this.#stderr}`);
  }

  /** Returns undefined if the client was killed before the end. */
  async work(): Promise<Outcome | undefined> {
    this.#child.stdin.write("go\n");
    for (let line = await this.#next(); line !== undefined; line = await this.#next()) {
      const { outcome, ...fact } = line;
      Object.assign(this.known, fact);
      if (outcome === undefined) continue;
      const { exitCode, outputBytes } = outcome;
      return {
        ...(exitCode === undefined ? {} : { exitCode }),
        ...(outputBytes === undefined ? {} : { output: payloadOf(this.#plan).subarray(0, outputBytes) }),
      };
    }
    if (!this.#hasEnded()) await once(this.#child, "exit");
    if (this.#isKilled) return undefined;
    throw new Error(`A client ended with ${this.#child.exitCode}: ${this.#stderr}`);
  }

  /** Resolves when the process has ended. */
  async kill(): Promise<void> {
    if (this.#hasEnded()) return;
    this.#isKilled = true;
    const gone = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await gone;
  }

  #hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  async #next(): Promise<Line | undefined> {
    const { done, value } = await this.#lines.next();
    if (done === true) return undefined;
    try {
      return JSON.parse(value) as Line;
    } catch (error) {
      // The kill cut the last line.
      if (this.#isKilled) return undefined;
      throw error;
    }
  }
}
