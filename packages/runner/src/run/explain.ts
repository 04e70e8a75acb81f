import { messageOf } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { AppliedFix, StageName } from "../models/report.ts";
import type { EnvRecipe } from "../models/task.ts";
import { Session, type SessionItem } from "../session/session.ts";
import { StageFailure } from "../session/stage-context.ts";
import { stages } from "../session/stages.ts";
import { Work } from "../session/work.ts";
import { sessionItems } from "./run-items.ts";
import type { RunOptions } from "./run-options.ts";
import { thisProcess } from "./run-owner.ts";
import { servicesFor } from "./session-services.ts";

/** What a run of an item would do, before it does it. */
export interface Explanation {
  id: string;
  /** What the commit of the repository is, and where the repository comes from. */
  repository: { from: string; ref: string; commit: string } | null;
  client: string;
  environment: EnvRecipe;
  /** The hosts that set-up may reach. */
  network: string[];
  setup: string[][];
  build: string[][];
  test: { argv: string[]; cwd: string; env: Record<string, string>; parser: string; resultsFile: string | null };
  /** Whether a test that must fail shows that results are not forged. */
  canary: boolean;
  /** What earlier runs have found to be needed. */
  fixes: AppliedFix[];
  compat: string;
  expected: { failToPass: number; passToPass: number };
  /** Whether the state before the prediction was tested in this environment, and held. */
  isBaselineKnown: boolean;
  /** Snapshots that a run would start from. */
  snapshots: { stage: "env" | "task"; name: string; isThere: boolean }[];
  stages: { name: StageName; timeoutMs: number; tries: number }[];
}

/** Plans items as `runInstances` does, and runs nothing of them. */
export async function explainItems(options: RunOptions): Promise<Explanation[]> {
  const explanations: Explanation[] = [];
  for (const item of sessionItems(options)) explanations.push(await explain(options, item));
  return explanations;
}

async function explain(options: RunOptions, item: SessionItem): Promise<Explanation> {
  const { signal } = options;
  const journal = { emit: () => undefined, sync: () => Promise.resolve() };
  const services = servicesFor(options, await thisProcess(), journal);
  const session = await Session.open(services, item, signal);
  const work = new Work(session);
  try {
    await stages.find(({ name }) => name === "resolve")?.run(work);
    const { environment, command, envSnapshot, taskSnapshot, baselineKey } = work.plan;
    const has = async (name: string): Promise<boolean> => (await services.snapshots?.has(name, signal)) ?? false;
    const { task } = work;
    return {
      id: item.instance.id,
      repository: repositoryOf(item, work),
      client: options.client.kind,
      environment: environment.recipe,
      network: [...new Set([...session.config.network, ...environment.network])],
      setup: task.setup.map((line) => [line].flat()),
      build: command.build.map((argv) => [...argv]),
      test: {
        argv: [...command.argv],
        cwd: command.cwd,
        env: { ...work.env, ...command.env },
        parser: command.parser,
        resultsFile: command.resultsFile ?? null,
      },
      canary: command.canary !== null,
      fixes: work.reportFixes(),
      compat: item.compat.mode,
      expected: { failToPass: task.failToPass.length, passToPass: task.passToPass.length },
      isBaselineKnown: work.record.baseline?.key === baselineKey,
      snapshots: [
        { stage: "env", name: envSnapshot, isThere: await has(envSnapshot) },
        { stage: "task", name: taskSnapshot, isThere: await has(taskSnapshot) },
      ],
      stages: stages.map(({ name, timeoutMs, tries }) => ({ name, timeoutMs: timeoutMs(work), tries })),
    };
  } catch (error) {
    if (!(error instanceof StageFailure)) throw error;
    throw new SandboxError("start_failed", `Cannot plan ${item.label}: ${messageOf(error)}`, { cause: error });
  } finally {
    await work.repository?.[Symbol.asyncDispose]();
    await session[Symbol.asyncDispose]();
  }
}

function repositoryOf({ repo }: SessionItem, { repository }: Work): Explanation["repository"] {
  if (repo === undefined || repository === undefined) return null;
  const { url, path, mirror, name, ref } = repo;
  const from = url ?? path ?? `${name} in ${mirror}`;
  return { from, ref, commit: repository.commit };
}
