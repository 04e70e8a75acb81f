import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Engine, type Process, type Sandbox } from "@atoll/engine";
import type { QuietWatch } from "./load.ts";
import type { Progress } from "./progress.ts";
import { RawRunsc, type UserIds } from "./raw-runsc.ts";
import { until } from "./until.ts";

const guestPath = fileURLToPath(new URL("../../.cache/atoll-guest", import.meta.url));

export interface LabOptions {
  progress: Progress;
  quiet: QuietWatch;
  signal: AbortSignal;
}

/** One engine and its rival, on the same disk. Everything that benchmarks leave goes with it. */
export class Lab implements AsyncDisposable {
  readonly engine: Engine;
  readonly rival: RawRunsc;
  readonly progress: Progress;
  readonly quiet: QuietWatch;
  readonly signal: AbortSignal;
  readonly dataDir: string;
  #dir: string;

  private constructor(parts: LabOptions & Pick<Lab, "engine" | "rival" | "dataDir"> & { dir: string }) {
    this.engine = parts.engine;
    this.rival = parts.rival;
    this.progress = parts.progress;
    this.quiet = parts.quiet;
    this.signal = parts.signal;
    this.dataDir = parts.dataDir;
    this.#dir = parts.dir;
  }

  static async open(options: LabOptions): Promise<Lab> {
    const dir = await mkdtemp(join(tmpdir(), "atoll-bench-"));
    const dataDir = join(dir, "ours");
    const rivalDir = join(dir, "rival");
    await mkdir(rivalDir);
    let engine: Engine | undefined;
    try {
      engine = await Engine.open({ dataDir, guestPath });
      const rival = await copyRival(engine, rivalDir, options.signal);
      return new Lab({ ...options, engine, rival, dataDir, dir });
    } catch (error) {
      if (engine !== undefined) await closeEngine(engine);
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
  }

  create(): Promise<Sandbox> {
    return this.engine.create({ template: "host", driver: "gvisor" }, { signal: this.signal });
  }

  /** Not for ever, and not past an interrupt. */
  until<T>(promise: Promise<T>, what: string): Promise<T> {
    return until(promise, this.signal, what);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.rival[Symbol.asyncDispose]();
    } finally {
      await closeEngine(this.engine);
      await rm(this.#dir, { recursive: true, force: true });
    }
  }
}

/** Tries each sandbox, whatever becomes of the others. */
async function closeEngine(engine: Engine): Promise<void> {
  const outcomes = await Promise.allSettled(engine.list().map(({ id }) => engine.kill(id)));
  await engine.close();
  const failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
  if (failures.length > 0) throw new AggregateError(failures, `Cannot remove ${failures.length} sandboxes`);
}

async function copyRival(engine: Engine, dir: string, signal: AbortSignal): Promise<RawRunsc> {
  await using sandbox = await engine.create({ template: "host", driver: "gvisor" }, { signal });
  return await RawRunsc.copyOf(launcherPid(sandbox), { dir, user: await readUserIds(sandbox) });
}

async function readUserIds(sandbox: Sandbox): Promise<UserIds> {
  const [uid = "", gid = ""] = (
    await readOutput(await sandbox.spawn({ argv: ["/bin/sh", "-c", "id -u; id -g"], cwd: "/" }))
  ).split("\n");
  return { uid: Number(uid), gid: Number(gid) };
}

export async function readOutput(process: Process): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const { data } of process) chunks.push(data);
  const { exitCode } = await process.wait();
  const text = Buffer.concat(chunks).toString();
  if (exitCode !== 0) throw new Error(`A process ended with ${exitCode}: ${text}`);
  return text;
}

/** The parent of everything that belongs to the sandbox. */
export function launcherPid({ record }: Sandbox): number {
  if (record.state !== "running") throw new Error(`Sandbox ${record.id} is ${record.state}`);
  return record.container.pid;
}
