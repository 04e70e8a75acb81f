import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import type { LeaseFact } from "./lease-facts.ts";
import { programPath } from "./programs/test-programs.ts";

/** A `lease-worker.ts` in a separate process, which a test can stop, continue and kill. */
export class LeaseProcess {
  readonly id: string;
  readonly #child: ChildProcess;
  readonly #said: LeaseFact[] = [];
  readonly #closed: Promise<unknown>;
  #wakeAll = new AbortController();
  #consumed = 0;
  #isClosed = false;
  #stderr = "";

  /** Facts of this worker are also appended to `facts`, which all workers of a test share. */
  constructor(directory: string, id: string, facts: LeaseFact[], ...manner: "keep"[]) {
    this.id = id;
    const words = [programPath("lease-worker"), directory, id, ...manner];
    this.#child = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "pipe"] });
    onTestFinished(() => this.kill());
    const { stdout, stderr } = this.#child;
    if (stdout === null || stderr === null) throw new Error("The worker has no output");
    stderr.on("data", (data: Buffer) => {
      this.#stderr += data.toString();
    });
    const lines = createInterface({ input: stdout });
    lines.on("line", (line) => {
      const fact = JSON.parse(line) as LeaseFact;
      facts.push(fact);
      this.#said.push(fact);
      this.#wake();
    });
    this.#closed = once(lines, "close").then(() => {
      this.#isClosed = true;
      this.#wake();
    });
  }

  /** Waits for the first matching fact after the last one that a call returned. */
  async until(fits: (fact: LeaseFact) => boolean): Promise<LeaseFact> {
    for (let next = this.#consumed; ;) {
      const fact = this.#said[next];
      if (fact === undefined && this.#isClosed) throw new Error(`The worker ended: ${this.#stderr}`);
      if (fact === undefined) await once(this.#wakeAll.signal, "abort");
      else if (fits(fact)) {
        this.#consumed = Math.max(this.#consumed, next + 1);
        return fact;
      } else next += 1;
    }
  }

  step(step: string): Promise<LeaseFact> {
    return this.until((fact) => fact.step === step);
  }

  stop(): void {
    this.#child.kill("SIGSTOP");
  }

  wake(): void {
    this.#child.kill("SIGCONT");
  }

  /** Kills the worker. A second call does nothing. Everything that it printed before is then among the facts. */
  async kill(): Promise<void> {
    const isAlive = this.#child.exitCode === null && this.#child.signalCode === null;
    const gone = isAlive ? once(this.#child, "exit") : undefined;
    this.#child.kill("SIGKILL");
    await gone;
    await this.#closed;
  }

  #wake(): void {
    this.#wakeAll.abort();
    this.#wakeAll = new AbortController();
  }
}
