import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { EngineOptions, Sandbox } from "@atoll/engine";
import { actions, type DriverName, type SandboxAction, type SandboxState } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { hostLeftovers } from "../support/host-leftovers.ts";
import { openTestEngine, stateReached, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

const signal = AbortSignal.timeout(300_000);

/** The call that a client makes for each action. `kill` is accepted everywhere; the engine cannot change limits. */
const asks: Record<
  Exclude<SandboxAction, "kill" | "change limits of">,
  (sandbox: Sandbox, host: TestEngine) => unknown
> = {
  "start a process in": (sandbox) => sandbox.spawn({ argv: ["true"] }),
  "use files of": (sandbox) => sandbox.files.list("/"),
  "open a port of": (sandbox) => sandbox.dial(80, { signal }),
  "read usage of": (sandbox) => sandbox.usage(),
  pause: ({ id }, { engine }) => engine.pause(id),
  resume: ({ id }, { engine }) => engine.resume(id),
  restart: ({ id }, { engine }) => engine.resume(id, { memory: false }),
  fork: ({ id }, { engine }) => engine.fork(id),
  "roll back": ({ id }, { engine }) => engine.rollback(id, 1),
  "take a snapshot of": ({ id }, { engine, dataDir }) => engine.saveFiles(id, join(dataDir, "archive"), { signal }),
};
type Asked = keyof typeof asks;

const allAsked = Object.keys(asks) as Asked[];
/** Actions that are methods of a sandbox; the others are methods of the engine. */
const ofTheSandbox: readonly Asked[] = ["start a process in", "use files of", "open a port of", "read usage of"];
/** Actions that do not wait until the current operation is done. */
const atOnce: readonly Asked[] = [...ofTheSandbox, "fork"];

interface Held {
  host: TestEngine;
  sandbox: Sandbox;
  /** Lets the held operation continue, and resolves when it is done. */
  letGo?: () => Promise<unknown>;
}

async function running(driver: DriverName, options: Partial<EngineOptions> = {}): Promise<Held> {
  const host = await openTestEngine(options);
  return { host, sandbox: await host.engine.create({ driver }) };
}

/** Makes a sandbox that stays in the middle of a pause or a resume. */
async function heldAt(step: "pause" | "resume", state: SandboxState): Promise<Held> {
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const held = await running("gvisor", {
    atStep: async (name) => {
      if (name.startsWith(`${step}: `)) await gate;
    },
  });
  const { host, sandbox } = held;
  const reached = stateReached(host.engine, sandbox.id, state);
  if (step === "resume") await host.engine.pause(sandbox.id);
  const done = host.engine[step](sandbox.id);
  await Promise.race([reached, done]);
  const letGo = (): Promise<unknown> => {
    open();
    return done;
  };
  return { ...held, letGo };
}

/** Makes a sandbox whose runtime never answers. */
async function creating(): Promise<Held> {
  const dataDir = await makeDataDir();
  const runscPath = join(dataDir, "runsc");
  await writeFile(runscPath, '#!/bin/sh\ncase "$*" in *" run "*) exec sleep 1000;; esac\nexec runsc "$@"\n');
  await chmod(runscPath, 0o755);
  const host = await openTestEngine({ dataDir, runscPath });
  const outcome = host.engine.create().catch((error: unknown) => error);
  await expect.poll(() => host.engine.list().map(({ state }) => state)).toEqual(["creating"]);
  const [record] = host.engine.list();
  if (record === undefined) throw new Error("The sandbox is not listed while it starts");
  const sandbox = host.engine.get(record.id);
  return { host, sandbox, letGo: () => Promise.all([sandbox.kill(), outcome]) };
}

const ways: Record<Exclude<SandboxState, "killing">, (driver: DriverName) => Promise<Held>> = {
  creating,
  running,
  pausing: () => heldAt("pause", "pausing"),
  paused: async (driver) => {
    const held = await running(driver);
    await held.host.engine.pause(held.sandbox.id);
    return held;
  },
  resuming: () => heldAt("resume", "resuming"),
  failed: async (driver) => {
    const held = await running(driver);
    const [pid] = (await hostLeftovers(held.host.dataDir)).processes;
    process.kill(pid ?? 0, "SIGKILL");
    await expect.poll(() => held.sandbox.state).toBe("failed");
    return held;
  },
  killed: async (driver) => {
    const held = await running(driver);
    await held.sandbox.kill();
    return held;
  },
  released: async (driver) => {
    const held = await running(driver);
    await held.host.engine.release(held.sandbox.id);
    return held;
  },
};

const outcomeOf = async (ask: () => unknown): Promise<unknown> => {
  try {
    return await ask();
  } catch (error) {
    return error;
  }
};

const states = Object.keys(ways) as (keyof typeof ways)[];
/** Memory is saved under gVisor alone, and only its runtime can be made to hang. */
const localStates = ["running", "failed", "killed", "released"] as const;

describe.each([
  ...states.map((state) => ["gvisor", state] as const),
  ...localStates.map((state) => ["local", state] as const),
])("a sandbox under %s that is %s", (driver, state) => {
  test("refuses actions that its state does not allow, names them, and stays unchanged", async () => {
    const { host, sandbox, letGo } = await ways[state](driver);
    expect(sandbox.state).toBe(state);
    const isGone = state === "killed" || state === "released";
    const isMoving = state === "creating" || state === "pausing" || state === "resuming";
    const asked = isMoving ? atOnce : allAsked;
    for (const action of asked.filter((one) => !(actions[one] as readonly SandboxState[]).includes(state))) {
      const error = await outcomeOf(() => asks[action](sandbox, host));
      if (isGone && !ofTheSandbox.includes(action)) {
        expect(error).toMatchObject({ code: "not_found", details: { sandboxId: sandbox.id } });
        continue;
      }
      expect(error).toMatchObject({
        code: "invalid_state",
        message: `Cannot ${action} sandbox ${sandbox.id}: it is ${state}`,
        suggestion: expect.stringContaining(actions[action].join(" or ")) as string,
        details: { sandboxId: sandbox.id, state, action, allowed: actions[action] },
      });
    }
    expect(sandbox.state).toBe(state);
    await letGo?.();
    await sandbox.kill();
    await host.dispose();
  });
});
