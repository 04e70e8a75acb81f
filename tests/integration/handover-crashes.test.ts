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
 * Handovers of several sandboxes, each stopped at another of these steps. A handover has fewer than twenty steps; one
 * whose step does not exist completes. The short list has one step of each part: the pause at the owner, the upload,
 * the claim of the metadata, and the download with the resume. `npm run test:long` tries all steps.
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
 * Stops the handovers of sandboxes by holding back their requests to the store, each from its n-th request on, until
 * `clear` is called.
 */
class HeldHandovers {
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

  /** Resolves when the handover of this sandbox is stopped. */
  stopAt(step: number, id: string): Promise<void> {
    this.#left.set(id, step);
    return new Promise((resolve) => void this.#held.set(id, resolve));
  }

  /** Lets the servers that still live go on. */
  clear(): void {
    this.#store.calm();
    this.#clear();
  }
}

/** Counts writes and downloads as steps, but not reads of leases and metadata, which servers repeat all the time. */
function isStep(operation: string, name: string): boolean {
  return operation === "GetObject" ? /^\d+\//.test(name) : operation !== "HeadObject" && !operation.startsWith("List");
}

const busy = new Set(["in_use", "unavailable"]);

/**
 * Reads the note, and retries for as long as another server waits for the sandbox: the place of a dead one expires
 * after a while, and until then requests fail with an error that can be retried.
 */
async function readNote(api: ApiClient, id: string): Promise<string> {
  let answer = await api.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, { shell: "cat note" });
  const isSettled = async (): Promise<boolean> => {
    if (!busy.has(answer.body.error?.code ?? "")) return true;
    answer = await api.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, { shell: "cat note" });
    return false;
  };
  // A lease takes seconds to expire, and more frequent requests would only keep the servers busy.
  await expect.poll(isSettled, { interval: 500 }).toBe(true);
  if (answer.status !== 200) throw new Error(`Sandbox ${id} does not run: ${JSON.stringify(answer.body.error)}`);
  return answer.body.stdout;
}

/**
 * The servers that die, and whether work since the last stored checkpoint may be lost. If it is, the sandbox says so.
 */
const deaths = [
  { dies: "both servers", killed: ["a", "b"], goesOn: "c", mayLose: true },
  { dies: "the server that had it", killed: ["a"], goesOn: "b", mayLose: true },
  { dies: "the server that asked for it", killed: ["b"], goesOn: "c", mayLose: false },
] as const satisfies { killed: ("a" | "b")[]; [more: string]: unknown }[];

const whole = "one\ntwo\n";

test.for(deaths)(
  "a sandbox whose handover ends with the death of $dies, at any step, goes on elsewhere as it was stored",
  { timeout: 300_000 },
  async (death) => {
    // Most of the time passes until leases expire, so the rounds wait for that together.
    const notes = await Promise.all(rounds.map((steps) => killDuringHandovers(death, steps)));
    // At the first steps the new checkpoint is not stored yet, at the last ones it is.
    expect(notes.flat()).toContain(whole);
    if (death.mayLose) expect(notes.flat()).toContain("one\n");
  },
);

/**
 * Starts servers on one store, with leases that expire while the test waits. Those that will be killed are processes.
 */
async function startServers(
  store: SharedS3Store,
  killed: readonly string[],
): Promise<Record<"a" | "b" | "c", KillableServer>> {
  const flags = [...store.flags(), ...leaseTtl];
  const start = async (name: string): Promise<KillableServer> => {
    if (!killed.includes(name)) return { server: await startTestServer({ flags }), kill: () => undefined };
    const server = await startTestServerProcess({ flags });
    return { server, kill: () => server.signal("SIGKILL") };
  };
  const [a, b, c] = await Promise.all([start("a"), start("b"), start("c")]);
  for (const { server } of [a, b, c]) onTestFinished(() => server.dispose());
  return { a, b, c };
}

interface KillableServer {
  server: TestServer;
  kill: () => unknown;
}

/** Stops the handover of each sandbox at another step, kills the servers, and returns the final notes. */
async function killDuringHandovers(
  { killed, goesOn, mayLose }: (typeof deaths)[number],
  steps: number[],
): Promise<string[]> {
  const store = await sharedBucket();
  onTestFinished(() => store[Symbol.asyncDispose]());
  const servers = await startServers(store, killed);
  const [atA, atB] = [clientOf(servers.a.server), clientOf(servers.b.server)];
  const ids = await Promise.all(steps.map(() => createSandboxWithNote(atA)));

  const handovers = new HeldHandovers(store);
  await Promise.all(
    ids.map((id, index) => {
      const stopped = handovers.stopAt(steps[index] ?? 0, id);
      // A handover that has no such step completes.
      const done = atB.run(id, { shell: "true" }).catch(() => undefined);
      return Promise.race([stopped, done]);
    }),
  );
  await Promise.all([servers.a.kill(), servers.b.kill()]);
  handovers.clear();

  const successor = servers[goesOn].server;
  const api = clientOf(successor);
  const notes = await Promise.all(ids.map((id) => readNote(api, id)));
  for (const [index, id] of ids.entries()) {
    const { body } = await api.ask<SandboxInfo>("GET", `/sandboxes/${id}`);
    expect(body).toMatchObject({ state: "running", server: { url: successor.url } });
    // If the checkpoint was stored before they died nothing is missing; otherwise `takenOver` reports the older one.
    const isWhole = notes[index] === whole;
    expect(isWhole || (mayLose && notes[index] === "one\n")).toBe(true);
    if (!isWhole || body.takenOver !== undefined) expect(body.takenOver?.checkpoint).toBe(isWhole ? 2 : 1);
  }
  return notes;
}
