import { once } from "node:events";
import type { Socket } from "node:net";
import type { ResumeResult, Sandbox } from "@atoll/engine";
import type { Process } from "@atoll/host";
import type { Lab } from "../lab.ts";
import type { RawBundle } from "../raw-runsc.ts";

/** A process that repeats its input. It is the same on both sides, and survives pause and resume. */
const echoArgv = ["/bin/cat"];
const question = "are you there\n";

/** A sandbox of ours with a process that answers. */
export class OurEcho {
  readonly sandbox: Sandbox;
  #lab: Lab;
  #process: Process;
  #output: AsyncIterator<{ data: Buffer }>;

  private constructor(lab: Lab, sandbox: Sandbox, process: Process) {
    this.#lab = lab;
    this.sandbox = sandbox;
    this.#process = process;
    this.#output = process[Symbol.asyncIterator]();
  }

  static async start(lab: Lab, sandbox: Sandbox): Promise<OurEcho> {
    const echo = new OurEcho(lab, sandbox, await sandbox.spawn({ argv: echoArgv, cwd: "/", stdin: true }));
    await echo.ask();
    return echo;
  }

  async ask(): Promise<void> {
    await this.#process.writeStdin(question);
    let heard = "";
    while (heard.length < question.length) {
      const next = await this.#lab.until(this.#output.next(), "answer of a process in a sandbox");
      if (next.done === true) throw new Error("The process that answers has ended");
      heard += next.value.data.toString();
    }
    assertAnswer(heard);
  }

  /** Measures from the call of `resume` to the answer of the process in the sandbox. */
  async resume(): Promise<ResumeResult & { tookMs: number }> {
    const startMs = performance.now();
    const result = await this.#lab.engine.resume(this.sandbox.id);
    await this.ask();
    return { ...result, tookMs: performance.now() - startMs };
  }
}

/** A raw container whose only process answers. */
export class RawEcho implements AsyncDisposable {
  #lab: Lab;
  #bundle: RawBundle;
  #stdout: Socket;

  private constructor(lab: Lab, bundle: RawBundle) {
    this.#lab = lab;
    this.#bundle = bundle;
    this.#stdout = bundle.start();
  }

  static async start(lab: Lab): Promise<RawEcho> {
    const echo = new RawEcho(lab, await lab.rival.prepare(echoArgv));
    await echo.#ask();
    return echo;
  }

  /** Measures from the start of `runsc checkpoint` to its end. */
  async checkpoint(): Promise<number> {
    const startMs = performance.now();
    await this.#bundle.checkpoint();
    const tookMs = performance.now() - startMs;
    this.#stdout.destroy();
    await this.#bundle.clear();
    return tookMs;
  }

  /** Measures from the start of `runsc restore` to the answer of the process in it. */
  async restore(): Promise<number> {
    const startMs = performance.now();
    this.#stdout = this.#bundle.restore();
    await this.#ask();
    return performance.now() - startMs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stdout.destroy();
    await this.#bundle[Symbol.asyncDispose]();
  }

  async #ask(): Promise<void> {
    this.#bundle.say(question);
    let heard = "";
    while (heard.length < question.length) {
      const [data] = (await this.#lab.until(once(this.#stdout, "data"), "answer of a raw container")) as [Buffer];
      heard += data.toString();
    }
    assertAnswer(heard);
  }
}

function assertAnswer(heard: string): void {
  if (heard !== question) throw new Error(`A process that should repeat its input printed ${JSON.stringify(heard)}`);
}
