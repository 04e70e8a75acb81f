import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { DriverName } from "@atoll/protocol";
import { Atoll, Sandbox } from "@atoll/sdk";
import { processesOf } from "../../process-tree.ts";
import { until } from "../../until.ts";
import type { ServerProcess } from "../server-process.ts";
import { CrashingClient } from "./crashing-client.ts";
import type { CuttingProxy } from "./cutting-proxy.ts";
import { payloadOf, type Plan } from "./plan.ts";
import { carryOn, doWork, runsPath, uploadPath, type Outcome } from "./work.ts";

export interface Problem {
  kind: "bytes" | "exit code" | "leak" | "error";
  text: string;
}

export interface RoundReport {
  problems: Problem[];
  sandboxId: string;
  /** The work ended before the victim was hit. */
  isUndisturbed: boolean;
}

export interface Arena {
  server: ServerProcess;
  proxy: CuttingProxy;
  driver: DriverName;
  signal: AbortSignal;
  /** Called after a problem, while the sandbox still exists. */
  onProblem: (report: RoundReport) => Promise<void>;
}

/** Runs one round: creates a sandbox, starts work, hits the victim in the middle of it, and checks the result. */
export async function playRound(arena: Arena, plan: Plan): Promise<RoundReport> {
  const { server, signal } = arena;
  await using direct = new Atoll({ baseUrl: server.url, apiKey: server.key });
  const sandbox = await Sandbox.create({ client: direct, driver: arena.driver, signal });
  const report: RoundReport = { problems: [], sandboxId: sandbox.id, isUndisturbed: false };
  const failures = new Failures();
  try {
    const outcome = await until(work(arena, plan, sandbox.id, failures), signal, "end of the work");
    report.problems.push(...(await judge(sandbox, plan, outcome)));
  } catch (error) {
    signal.throwIfAborted();
    report.problems.push({ kind: "error", text: error instanceof Error ? String(error.stack) : String(error) });
  } finally {
    report.isUndisturbed = arena.proxy.disarm() === plan.hitAt.length;
    await failures.settled;
  }
  if (report.problems.length > 0) await arena.onProblem(report);
  await sandbox.kill();
  report.problems.push(...(await findLeaks(server, direct)));
  return report;
}

/** The failures of the victim, one after the other. The round waits for them. */
class Failures {
  settled: Promise<void> = Promise.resolve();

  add(failure: () => Promise<void>): void {
    this.settled = this.settled.then(failure);
  }
}

async function work({ server, proxy }: Arena, plan: Plan, sandboxId: string, failures: Failures): Promise<Outcome> {
  const target = { url: proxy.url, key: server.key };
  await using client = new Atoll({ baseUrl: target.url, apiKey: target.key });
  const sandbox = await Sandbox.connect(sandboxId, { client });
  const worker = { client, sandbox, plan, emit: () => undefined };
  switch (plan.victim) {
    case "client": {
      const crashing = new CrashingClient(target, sandboxId, plan);
      try {
        await crashing.ready();
        proxy.arm(plan.hitAt, () => failures.add(() => crashing.kill()));
        return (await crashing.work()) ?? (await carryOn(worker, crashing.known));
      } finally {
        await crashing.kill();
      }
    }
    case "server":
      proxy.arm(plan.hitAt, () =>
        failures.add(async () => {
          await server.kill();
          await server.restart();
        }),
      );
      return await doWork(worker);
    case "connection":
      proxy.arm(plan.hitAt, () => proxy.cut(plan));
      return await doWork(worker);
  }
}

async function judge(sandbox: Sandbox, plan: Plan, { exitCode, output }: Outcome): Promise<Problem[]> {
  const expected = payloadOf(plan);
  if (plan.work === "upload") {
    const path = uploadPath(plan);
    const stored = Buffer.from(await sandbox.files.read(path, { as: "bytes" }));
    const beside = (await sandbox.files.list(path.slice(0, path.lastIndexOf("/")))).map(({ name }) => name);
    return [
      ...(stored.equals(expected) ? [] : [{ kind: "bytes", text: difference(expected, stored) } as const]),
      ...(beside.length === 1 ? [] : [{ kind: "leak", text: `also in the directory: ${beside.join(", ")}` } as const]),
    ];
  }
  const runs = (await sandbox.files.read(runsPath(plan))).split("\n").length - 1;
  const problems: Problem[] = [];
  if (output === undefined || !output.equals(expected)) {
    problems.push({ kind: "bytes", text: difference(expected, output ?? Buffer.alloc(0)) });
  }
  if (exitCode !== plan.exitCode) problems.push({ kind: "exit code", text: `${exitCode}, not ${plan.exitCode}` });
  if (runs !== 1) problems.push({ kind: "bytes", text: `the command ran ${runs} times` });
  return problems;
}

async function findLeaks(server: ServerProcess, client: Atoll): Promise<Problem[]> {
  const known: string[] = [];
  for await (const { id } of client.sandboxes()) known.push(id);
  const directories = await readdir(join(server.dataDir, "sandboxes"));
  const processes = (await processesOf(server.dataDir)).filter((pid) => pid !== server.pid);
  const found = [
    ...known.map((id) => `the server has ${id}`),
    ...directories.map((name) => `directory ${name}`),
    ...processes.map((pid) => `process ${pid}`),
  ];
  return found.map((text) => ({ kind: "leak", text }));
}

/** Says where two contents differ, and how long they are. */
function difference(expected: Buffer, found: Buffer): string {
  let at = 0;
  while (at < expected.byteLength && expected[at] === found[at]) at += 1;
  return `${found.byteLength} bytes of ${expected.byteLength}, different from byte ${at} on`;
}
