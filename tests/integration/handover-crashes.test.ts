// @module-tag gvisor
import { pollUntil } from "@atoll/engine";
import type { CommandResult, SandboxInfo } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startDoomedServers } from "../support/doomed-servers.ts";
import { makeNotedSandbox } from "../support/noted-sandbox.ts";
import { sharedBucket, type SharedS3Store } from "../support/shared-store.ts";
import type { TestServer } from "../support/test-server.ts";

/** Sandboxes, each of which is stopped one step further than the one before. Twice as many steps are more than a hand-over has. */
const atOnce = 10;

const clientOf = ({ url, key }: Pick<TestServer, "url" | "key">): ApiClient => new ApiClient(url, key);

/** Keeps back for ever what the hand-over of a sandbox asks of the store, from its n-th step on: whoever is at it gets no further. */
class Obstacles {
  readonly #held = new Map<string, () => void>();
  readonly #left = new Map<string, number>();

  constructor(store: SharedS3Store) {
    store.setFaults(({ operation, key }) => {
      const [, id = "", ...rest] = key.split("/");
      const left = this.#left.get(id);
      if (left === undefined || !isStep(operation, rest.join("/"))) return undefined;
      this.#left.set(id, left - 1);
      if (left > 1) return undefined;
      this.#held.get(id)?.();
      return { do: "hold", until: new Promise(() => undefined) };
    });
  }

  /** Resolves when it stands. */
  stopAt(step: number, id: string): Promise<void> {
    this.#left.set(id, step);
    return new Promise((resolve) => void this.#held.set(id, resolve));
  }
}

/** Everything that is written, and the downloads; servers look at leases and metadata all the time. */
function isStep(operation: string, name: string): boolean {
  return operation === "GetObject" ? /^\d+\//.test(name) : operation !== "HeadObject" && !operation.startsWith("List");
}

const busy = new Set(["in_use", "unavailable"]);

/** A server that waited for the sandbox keeps its place until that has run out: whoever comes meanwhile is told so, and to try again. */
async function readNote(api: ApiClient, id: string): Promise<string> {
  let note: string | undefined;
  let refusal: unknown;
  await pollUntil(
    async () => {
      const { status, body } = await api.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, { shell: "cat note" });
      if (status === 200) note = body.stdout;
      else refusal = body.error;
      return note !== undefined || !busy.has(body.error?.code ?? "");
    },
    { deadlineMs: 120_000 },
  );
  if (note === undefined) throw new Error(`Sandbox ${id} does not go on: ${JSON.stringify(refusal)}`);
  return note;
}

test.for([
  { before: 0, note: "one\n" },
  { before: atOnce, note: "one\ntwo\n" },
])(
  "whichever step of a hand-over both servers die at, beyond the first $before, a third one goes on with what was stored",
  { timeout: 300_000 },
  async ({ before, note }) => {
    const store = await sharedBucket();
    onTestFinished(() => store[Symbol.asyncDispose]());
    const { a, b, c } = await startDoomedServers(store);
    for (const server of [a, b, c]) onTestFinished(() => server.dispose());
    const [atA, atB, atC] = [clientOf(a), clientOf(b), clientOf(c)];
    const ids = await Promise.all(Array.from({ length: atOnce }, () => makeNotedSandbox(atA)));

    const obstacles = new Obstacles(store);
    await Promise.all(
      ids.map((id, index) => {
        const stopped = obstacles.stopAt(before + index + 1, id);
        // One that gets through has no such step.
        const done = atB.run(id, { shell: "true" }).catch(() => undefined);
        return Promise.race([stopped, done]);
      }),
    );
    await Promise.all([a.signal("SIGKILL"), b.signal("SIGKILL")]);
    store.calm();

    const notes = await Promise.all(ids.map((id) => readNote(atC, id)));
    expect(notes).toContain(note);
    for (const [index, id] of ids.entries()) {
      const { body } = await atC.ask<SandboxInfo>("GET", `/sandboxes/${id}`);
      expect(body).toMatchObject({ state: "running", server: { url: c.url } });
      // Whether it was stored before they died: then nothing is missing, and otherwise it is told.
      const isWhole = notes[index] === "one\ntwo\n";
      expect(isWhole || notes[index] === "one\n").toBe(true);
      if (!isWhole || body.takenOver !== undefined) expect(body.takenOver?.checkpoint).toBe(isWhole ? 2 : 1);
    }
  },
);
