import { rm } from "node:fs/promises";
import { Engine, type EngineOptions, type Sandbox } from "@atoll/engine";
import type { Process } from "@atoll/host";
import type { ProcessExit, SandboxId, SandboxState, SpawnRequestInput } from "@atoll/protocol";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { copyHostScan } from "./host-scan.ts";
import { patience } from "./patience.ts";
import { makeDataDir } from "./test-root.ts";

/** An engine on a new data directory. `dispose` kills every sandbox and removes the directory. */
export interface TestEngine {
  engine: Engine;
  dataDir: string;
  dispose(): Promise<void>;
}

/** After this time a sandbox that does not start fails its test. On a slow machine the time is longer. */
const startTimeoutMs = 30_000 * patience;

export async function openTestEngine(options: Partial<EngineOptions> = {}): Promise<TestEngine> {
  const dataDir = options.dataDir ?? (await makeDataDir());
  copyHostScan(dataDir);
  const engine = await Engine.open({ guestPath: guestBinaryPath(), startTimeoutMs, ...options, dataDir });
  return {
    engine,
    dataDir,
    dispose: async () => {
      await Promise.all(engine.list().map(({ id }) => engine.kill(id)));
      await engine.close();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

export interface Finished extends ProcessExit {
  stdout: Buffer;
  stderr: Buffer;
  /** The output of both streams, in the order in which it arrived. */
  output: string;
}

/** Reads the output of a process until it ends. */
export async function finish(process: Process): Promise<Finished> {
  const chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  let output = "";
  for await (const { stream, data } of process) {
    chunks[stream].push(data);
    if (output.length < 1_000_000) output += data.toString("latin1");
  }
  const exit = await process.wait();
  return { ...exit, stdout: Buffer.concat(chunks.stdout), stderr: Buffer.concat(chunks.stderr), output };
}

export async function runIn(
  sandbox: Sandbox,
  command: string | string[],
  request: Partial<SpawnRequestInput> = {},
): Promise<Finished> {
  const argv = typeof command === "string" ? ["bash", "-c", command] : command;
  return finish(await sandbox.spawn({ ...request, argv }));
}

/** Reads the output of a process piece by piece, for tests that write and read in turns. */
export class Conversation {
  #events: AsyncIterator<{ data: Buffer }, unknown>;

  constructor(process: Process) {
    this.#events = process[Symbol.asyncIterator]();
  }

  /** Returns the output since the last call, up to and including a match of `pattern`. */
  async until(pattern: RegExp): Promise<string> {
    let seen = "";
    while (!pattern.test(seen)) {
      const result = await this.#events.next();
      if (result.done === true) throw new Error(`Output ended before ${pattern}: ${seen}`);
      seen += result.value.data.toString("utf8");
    }
    return seen;
  }

  async toEnd(): Promise<string> {
    let seen = "";
    for (;;) {
      const result = await this.#events.next();
      if (result.done === true) return seen;
      seen += result.value.data.toString("utf8");
    }
  }
}

/** Resolves at the moment at which the sandbox enters this state, so that the caller's next step happens in it. */
export function stateReached(engine: Engine, id: SandboxId, state: SandboxState): Promise<void> {
  return new Promise((resolve) => {
    const stop = engine.events.listen((event) => {
      if (event.type !== "state" || event.sandboxId !== id || event.to !== state) return;
      stop();
      resolve();
    });
  });
}
