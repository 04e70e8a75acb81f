import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Engine, type Sandbox } from "@atoll/engine";
import type { Process } from "@atoll/host";
import type { SandboxLimitsInput } from "@atoll/protocol";
import { RawRunsc, type UserIds } from "./raw-runsc.ts";
import { Workbench, type WorkbenchOptions } from "./workbench.ts";

const guestPath = fileURLToPath(new URL("../../.cache/atoll-guest", import.meta.url));

/** One engine and its rival on the same disk. Closing the lab removes everything that benchmarks leave. */
export class Lab extends Workbench {
  readonly engine: Engine;
  readonly rival: RawRunsc;
  readonly dataDir: string;

  private constructor(dir: string, parts: WorkbenchOptions & Pick<Lab, "engine" | "rival" | "dataDir">) {
    super(dir, parts);
    this.engine = parts.engine;
    this.rival = parts.rival;
    this.dataDir = parts.dataDir;
  }

  static async open(options: WorkbenchOptions): Promise<Lab> {
    const dir = await mkdtemp(join(tmpdir(), "atoll-bench-"));
    const dataDir = join(dir, "ours");
    const rivalDir = join(dir, "rival");
    await mkdir(rivalDir);
    let engine: Engine | undefined;
    try {
      engine = await Engine.open({ dataDir, guestPath });
      const rival = await copyRival(engine, rivalDir, options.signal);
      return new Lab(dir, { ...options, engine, rival, dataDir });
    } catch (error) {
      if (engine !== undefined) await closeEngine(engine);
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
  }

  create(limits: SandboxLimitsInput = {}): Promise<Sandbox> {
    return this.engine.create({ template: "host", driver: "gvisor", limits }, { signal: this.signal });
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.rival[Symbol.asyncDispose]();
    } finally {
      await closeEngine(this.engine);
      await super[Symbol.asyncDispose]();
    }
  }
}

/** Kills every sandbox, even if some of the kills fail. */
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

/** Returns the launcher, the parent of every process that belongs to the sandbox. */
export function launcherPid({ record }: Sandbox): number {
  if (record.state !== "running") throw new Error(`Sandbox ${record.id} is ${record.state}`);
  return record.container.pid;
}
