import { join } from "node:path";
import { isSandboxError } from "@atoll/protocol";
import { requestFixes } from "../compat/choose-fixes.ts";
import { toArgv } from "../models/task.ts";
import { makeChanges } from "./patch.ts";
import type { StageOutcome } from "./session.ts";
import { StageFailure } from "./stage-context.ts";
import { changesFiles, type Return, symptomsOf, type Work } from "./work.ts";

/** What a stage resolves to. `again` names the stage from which the session goes on, instead of the next one. */
export type Outcome = StageOutcome & { again?: Return };

const checkoutTimeoutMs = 20 * 60_000;

/** Takes the files of the commit out of the repository, without what came before or after it. */
export async function checkout(work: Work): Promise<Outcome> {
  const { session, repository } = work;
  if (await hasTask(work)) return { status: "cached" };
  if (repository === undefined) return { status: "skipped", reason: "the task has no repository" };
  if (!work.exported) await repository.exportTo(gitDirectory(work));
  work.exported = true;
  session.signal.throwIfAborted();
  return { status: "ok" };
}

/** A sandbox with the environment, from its snapshot where there is one, and with the files of the commit. */
export async function env(work: Work): Promise<Outcome> {
  const { session, plan } = work;
  const { services } = session;
  if (await hasTask(work)) return { status: "cached" };
  const status = await startEnvironment(work);
  if (work.repository !== undefined) await layInTree(work);
  session.signal.throwIfAborted();
  return services.snapshots === undefined || plan.environment.recipe.language === "none"
    ? { status: "ok" }
    : { status };
}

/** Changes that make an old project run: those that are asked for, and those that were found to be needed. */
export async function compat(work: Work): Promise<Outcome> {
  if (await hasTask(work)) return { status: "cached" };
  const context = work.context();
  const missing = requestedFixes(work).filter((id) => !work.fixes.some(({ applied }) => applied.id === id));
  if (missing.length > 0) {
    const facts = await work.plan.environment.facts(context);
    const { chosen, unknown } = requestFixes(work.session.services.catalogue, missing, facts);
    if (unknown.length > 0) throw new StageFailure("environment", `There is no fix ${unknown.join(", ")}`);
    work.addFixes(chosen);
    await work.makePlan();
    if (chosen.some(({ plan }) => plan.interpreter !== undefined || plan.packages !== undefined)) {
      return { status: "ok", reason: "planned again", again: "checkout" };
    }
  }
  for (const { applied, plan } of work.fixes) {
    const fix = work.findFix(applied.id);
    // The environment was planned with the interpreter and the packages.
    const { interpreter: _interpreter, packages: _packages, ...rest } = plan;
    if (fix !== undefined && changesFiles(rest)) await work.plan.environment.apply(work.context(), fix, rest);
  }
  await hideFiles(work);
  return work.fixes.length === 0 ? { status: "skipped" } : { status: "ok", reason: namesOf(work) };
}

/** Files that fixes have laid in are no part of a diff. */
async function hideFiles(work: Work): Promise<void> {
  const paths = work.fixes.flatMap(({ plan }) => Object.keys(plan.files ?? {}));
  if (paths.length === 0 || work.repository === undefined) return;
  const script = `printf '/%s\\n' "$@" >>.git/info/exclude`;
  const argv = ["sh", "-c", script, "sh", ...paths];
  await work.context().runChecked({ argv, timeoutMs: 60_000 }, "exclude the files of fixes from git");
}

/** What the environment does in the work tree, then the commands of the task. */
export async function setup(work: Work): Promise<Outcome> {
  if (await hasTask(work)) return { status: "cached" };
  const context = work.context();
  try {
    await work.plan.environment.install(context);
    for (const line of work.task.setup) {
      const { setupTimeoutMs } = work.session.config;
      const argv = toArgv(line);
      await context.runChecked({ argv, timeoutMs: setupTimeoutMs }, `run the set-up command ${argv.join(" ")}`);
    }
  } catch (error) {
    const symptoms = await symptomsOf(context, error);
    const again = symptoms === undefined ? undefined : await work.findFixes(context, symptoms);
    if (again === undefined) throw error;
    await work.makePlan();
    return { status: "failed", reason: `${String(error)}; again with ${namesOf(work)}`, again: "checkout" };
  }
  work.isFresh = true;
  return { status: "ok" };
}

/** Saves the files of the sandbox. Every test run starts from them. */
export async function snapshot(work: Work): Promise<Outcome> {
  const { session, plan } = work;
  const { snapshots } = session.services;
  if (snapshots === undefined) return { status: "skipped", reason: "the client has no snapshots" };
  if (!session.hasSandbox) return { status: "cached" };
  await session.saveSnapshot(plan.taskSnapshot);
  await session.removeSandbox();
  return { status: "ok" };
}

/** A sandbox with the task as it was set up. Without snapshots it is set up once more. */
export async function openTask(work: Work): Promise<void> {
  const { session, plan } = work;
  const start = () => session.start(plan.taskSnapshot, [], session.config.testNetwork);
  if (session.services.snapshots === undefined) {
    if (!work.isFresh || !session.hasSandbox) await buildTask(work);
    work.isFresh = false;
    return;
  }
  try {
    await start();
  } catch (error) {
    if (!isSandboxError(error, "not_found")) throw error;
    // Another runner has pruned it since.
    await buildTask(work);
    await snapshot(work);
    await start();
  }
}

async function buildTask(work: Work): Promise<void> {
  await startEnvironment(work);
  if (work.repository !== undefined) await layInTree(work);
  await compat(work);
  await setup(work);
}

const namesOf = (work: Work): string => work.fixes.map(({ applied }) => applied.id).join(", ");

const gitDirectory = (work: Work): string => join(work.session.scratch, "git");

const requestedFixes = (work: Work): string[] => [...work.task.environment.fixes, ...work.session.item.compat.apply];

async function hasTask(work: Work): Promise<boolean> {
  const { services, signal, hasSandbox } = work.session;
  if (services.snapshots === undefined || hasSandbox) return false;
  const known = new Set(work.fixes.map(({ applied }) => applied.id));
  // What a requested fix changes is known only when it has been planned.
  if (requestedFixes(work).some((id) => !known.has(id))) return false;
  const { taskSnapshot } = work.plan;
  if (work.foundSnapshot === taskSnapshot) return true;
  const found = await services.snapshots.has(taskSnapshot, signal);
  if (found) work.foundSnapshot = taskSnapshot;
  return found;
}

/** One session makes the environment, and those that wait for it start from its snapshot. */
async function startEnvironment(work: Work): Promise<"ok" | "cached"> {
  const { session, plan } = work;
  const { snapshots, locks } = session.services;
  const { environment, envSnapshot } = plan;
  const network = environment.network;
  if (snapshots === undefined || environment.recipe.language === "none") {
    await session.start(undefined, network);
    await environment.prepare(work.context());
    return "ok";
  }
  using _lock = await locks.acquire(envSnapshot);
  if (await snapshots.has(envSnapshot, session.signal)) {
    await session.start(envSnapshot, network);
    return "cached";
  }
  await session.start(undefined, network);
  await environment.prepare(work.context());
  await session.saveSnapshot(envSnapshot);
  return "ok";
}

async function layInTree(work: Work): Promise<void> {
  const { session, repository } = work;
  const context = work.context();
  if (!work.exported) await repository?.exportTo(gitDirectory(work));
  work.exported = true;
  const { workdir } = session.config;
  await session.sandbox.copyIn(gitDirectory(work), `${workdir}/.git`, session.signal);
  const reset = { argv: ["git", "reset", "--quiet", "--hard"], timeoutMs: checkoutTimeoutMs };
  await context.runChecked(reset, "lay in the files of the commit");
  for (const patch of session.item.repo?.patches ?? []) {
    await makeChanges(context, { patch }, "environment");
  }
}
