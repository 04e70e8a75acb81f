// @module-tag gvisor
import { pollUntil } from "@atoll/host";
import type { CommandResult } from "@atoll/protocol";
import { expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { sharedDirectory } from "../support/shared-store.ts";
import { startTestServerProcess } from "../support/test-server.ts";

const persistent = { driver: "gvisor", persistent: true } as const;
/** The number of rounds of each client on each sandbox. */
const rounds = 4;
const deadlineMs = 120_000;

/** Repeats a command on the servers in turn until one has run it. Its idempotency key makes sure that it runs once. */
async function append(servers: readonly ApiClient[], id: string, word: string): Promise<void> {
  const refusals: string[] = [];
  let attempts = 0;
  const isDone = await pollUntil(
    async () => {
      const server = servers[attempts % servers.length] as ApiClient;
      attempts += 1;
      const request = { shell: `echo ${word} >>words` };
      const headers = { "idempotency-key": word };
      const { status, body } = await server.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, request, headers);
      if (status !== 200) refusals.push(`${body.error?.code}: ${body.error?.message}`);
      return status === 200 && body.command.state === "exited";
    },
    { deadlineMs },
  );
  if (!isDone) throw new Error(`${word} was not written: ${refusals.slice(-3).join("; ")}`);
}

test(
  "two server processes that both use the same sandboxes run every command once, and lose no memory",
  async () => {
    await using store = await sharedDirectory();
    await using a = await startTestServerProcess({ flags: store.flags() });
    await using b = await startTestServerProcess({ flags: store.flags() });
    const [atA, atB] = [a, b].map(({ url, key }) => new ApiClient(url, key)) as [ApiClient, ApiClient];
    const ids = await Promise.all([atA, atB].map(async (api) => (await api.create(persistent)).sandbox.id));
    await Promise.all(ids.map((id) => atA.run(id, { shell: "echo in memory >/dev/shm/note" })));

    const written = await Promise.all(
      ids.flatMap((id, sandbox) =>
        ["one", "two", "three"].map(async (client, number) => {
          const words: string[] = [];
          // Each client starts with a different server, and goes to the next one after a refusal.
          for (let round = 0; round < rounds; round += 1) {
            const word = `${client}-${sandbox}-${round}`;
            const order = (number + round) % 2 === 0 ? [atA, atB] : [atB, atA];
            await append(order, id, word);
            words.push(word);
          }
          return { id, words };
        }),
      ),
    );

    for (const id of ids) {
      const expected = written.flatMap((one) => (one.id === id ? one.words : [])).toSorted();
      const { stdout } = await atB.run(id, { shell: "cat words /dev/shm/note" });
      expect(stdout.trim().split("\n").toSorted()).toEqual([...expected, "in memory"].toSorted());
      expect((await atA.ask("DELETE", `/sandboxes/${id}`)).body).toEqual({ killed: true });
    }
  },
  2 * deadlineMs,
);
