// @module-tag gvisor
import { pollUntil } from "@atoll/host";
import type { CommandResult } from "@atoll/protocol";
import { expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { sharedDirectory } from "../support/shared-store.ts";
import { startTestServerProcess } from "../support/test-server.ts";

const persistent = { driver: "gvisor", persistent: true } as const;
/** Per client and sandbox. */
const rounds = 4;
const deadlineMs = 120_000;

/** Until some server has done it; the key makes it one line however often it is asked for. */
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
  "two server processes that pull at the same sandboxes do everything once, and lose nothing of their memory",
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
          // Each client begins with another server than the one before, and goes to the next when it is refused.
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
