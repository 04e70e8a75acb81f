// @module-tag gvisor
import type { CommandResult, SandboxInfo } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import { thorough } from "../../tools/thoroughness.mjs";
import { ApiClient } from "../support/api-client.ts";
import { leaseTtl } from "../support/crashing-servers.ts";
import { createSandboxWithNote } from "../support/sandbox-with-note.ts";
import { sharedBucket, type SharedS3Store } from "../support/shared-store.ts";
import { startTestServer, startTestServerProcess, type TestServer } from "../support/test-server.ts";

/**
 * Each of these steps of a hand-over stops another sandbox. Twenty are more than a hand-over has: one that has no such
 * step gets through. The first list has a step of each part: the pause at the owner, what it stores, the claim, what
 * the next one fetches and the resume. `npm run test:long` has them all.
 */
const rounds = thorough(
  [[1, 5, 9, 13]],
  [
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    [11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
  ],
);

const clientOf = ({ url, key }: Pick<TestServer, "url" | "key">): ApiClient => new ApiClient(url, key);

/**
 * Keeps back what the hand-over of a sandbox asks of the store, from its n-th step on: whoever is at it gets no further
 * until they are cleared away.
 */
class Obstacles {
  readonly #held = new Map<string, () => void>();
  readonly #left = new Map<string, number>();
  readonly #store: SharedS3Store;
  readonly #cleared: Promise<void>;
  #clear: () => void = () => undefined;

  constructor(store: SharedS3Store) {
    this.#store = store;
    this.#cleared = new Promise((resolve) => (this.#clear = resolve));
    store.setFaults(({ operation, key }) => {
      const [, id = "", ...rest] = key.split("/");
      const left = this.#left.get(id);
      if (left === undefined || !isStep(operation, rest.join("/"))) return undefined;
      this.#left.set(id, left - 1);
      if (left > 1) return undefined;
      this.#held.get(id)?.();
      return { do: "hold", until: this.#cleared };
    });
  }

  /** Resolves when it stands. */
  stopAt(step: number, id: string): Promise<void> {
    this.#left.set(id, step);
    return new Promise((resolve) => void this.#held.set(id, resolve));
  }

  /** Whoever lives goes on. */
  clear(): void {
    this.#store.calm();
    this.#clear();
  }
}

/** Everything that is written, and the downloads; servers look at leases and metadata all the time. */
function isStep(operation: string, name: string): boolean {
  return operation === "GetObject" ? /^\d+\//.test(name) : operation !== "HeadObject" && !operation.startsWith("List");
}

const busy = new Set(["in_use", "unavailable"]);

/**
 * A server that waited for the sandbox keeps its place until that has run out: whoever comes meanwhile is told so, and
 * to try again.
 */
async function readNote(api: ApiClient, id: string): Promise<string> {
  let answer = await api.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, { shell: "cat note" });
  const isSettled = async (): Promise<boolean> => {
    if (!busy.has(answer.body.error?.code ?? "")) return true;
    answer = await api.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, { shell: "cat note" });
    return false;
  };
  // A lease takes seconds to run out: whoever asks more often keeps the servers from their work.
  await expect.poll(isSettled, { interval: 500 }).toBe(true);
  if (answer.status !== 200) throw new Error(`Sandbox ${id} does not go on: ${JSON.stringify(answer.body.error)}`);
  return answer.body.stdout;
}

/** What may be told of a sandbox when one of these dies. Whoever has only what was stored before says so. */
const deaths = [
  { dies: "both servers", killed: ["a", "b"], goesOn: "c", mayLose: true },
  { dies: "the server that had it", killed: ["a"], goesOn: "b", mayLose: true },
  { dies: "the server that asked for it", killed: ["b"], goesOn: "c", mayLose: false },
] as const satisfies { killed: ("a" | "b")[]; [more: string]: unknown }[];

const whole = "one\ntwo\n";

test.for(deaths)(
  "a hand-over that ends with the death of $dies, at any step, goes on elsewhere with what was stored",
  { timeout: 300_000 },
  async (death) => {
    // Most of the time a lease has to run out: rounds wait together.
    const notes = await Promise.all(rounds.map((steps) => dieInHandOvers(death, steps)));
    // The first steps come before it was stored, the last ones after.
    expect(notes.flat()).toContain(whole);
    if (death.mayLose) expect(notes.flat()).toContain("one\n");
  },
);

/** Servers on one store, whose leases run out while the test waits: those that are killed are processes. */
async function startServers(store: SharedS3Store, killed: readonly string[]): Promise<Record<"a" | "b" | "c", Doomed>> {
  const flags = [...store.flags(), ...leaseTtl];
  const start = async (name: string): Promise<Doomed> => {
    if (!killed.includes(name)) return { server: await startTestServer({ flags }), kill: () => undefined };
    const server = await startTestServerProcess({ flags });
    return { server, kill: () => server.signal("SIGKILL") };
  };
  const [a, b, c] = await Promise.all([start("a"), start("b"), start("c")]);
  for (const { server } of [a, b, c]) onTestFinished(() => server.dispose());
  return { a, b, c };
}

interface Doomed {
  server: TestServer;
  kill: () => unknown;
}

/** Sandboxes of which each is stopped at another step. Gives back what their notes are at the end. */
async function dieInHandOvers(
  { killed, goesOn, mayLose }: (typeof deaths)[number],
  steps: number[],
): Promise<string[]> {
  const store = await sharedBucket();
  onTestFinished(() => store[Symbol.asyncDispose]());
  const servers = await startServers(store, killed);
  const [atA, atB] = [clientOf(servers.a.server), clientOf(servers.b.server)];
  const ids = await Promise.all(steps.map(() => createSandboxWithNote(atA)));

  const obstacles = new Obstacles(store);
  await Promise.all(
    ids.map((id, index) => {
      const stopped = obstacles.stopAt(steps[index] ?? 0, id);
      // One that gets through has no such step.
      const done = atB.run(id, { shell: "true" }).catch(() => undefined);
      return Promise.race([stopped, done]);
    }),
  );
  await Promise.all([servers.a.kill(), servers.b.kill()]);
  obstacles.clear();

  const heir = servers[goesOn].server;
  const api = clientOf(heir);
  const notes = await Promise.all(ids.map((id) => readNote(api, id)));
  for (const [index, id] of ids.entries()) {
    const { body } = await api.ask<SandboxInfo>("GET", `/sandboxes/${id}`);
    expect(body).toMatchObject({ state: "running", server: { url: heir.url } });
    // Whether it was stored before they died: then nothing is missing, and otherwise it is told.
    const isWhole = notes[index] === whole;
    expect(isWhole || (mayLose && notes[index] === "one\n")).toBe(true);
    if (!isWhole || body.takenOver !== undefined) expect(body.takenOver?.checkpoint).toBe(isWhole ? 2 : 1);
  }
  return notes;
}
