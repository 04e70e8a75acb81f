import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxId, type ApiEvent } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import type { Principal } from "../../src/auth/principal.ts";
import { EventJournal } from "../../src/events/event-journal.ts";
import { visibleEvents } from "../../src/http/visible-events.ts";

test("a key sees all events of a sandbox from the pool, also after it is gone, and none of another's", async () => {
  const dir = await mkdtemp(join(tmpdir(), "atoll-visible-"));
  const owners = new Map<SandboxId, string>();
  const events = EventJournal.open(dir, { ownerOf: (id) => owners.get(id) });
  onTestFinished(async () => {
    events.close();
    await rm(dir, { recursive: true, force: true });
  });
  const [mine, other] = ["a", "b"].map((letter) => SandboxId.parse(letter.repeat(20))) as [SandboxId, SandboxId];
  for (const sandboxId of [mine, other]) events.append({ type: "checkpoint.removed", sandboxId, checkpoint: 1 });
  owners.set(mine, "me").set(other, "you");
  for (const sandboxId of [mine, other]) events.append({ type: "checkpoint.removed", sandboxId, checkpoint: 2 });
  owners.clear();
  events.append({ type: "checkpoint.removed", sandboxId: mine, checkpoint: 3 });

  const principal = { kind: "key", key: { id: "me", ownOnly: true, verbs: ["events"] } } as unknown as Principal;
  const seen: ApiEvent[] = [];
  for await (const event of visibleEvents({ events }, principal, { cursor: 0, signal: new AbortController().signal })) {
    if (event.type !== "passed") seen.push(event);
    if (event.cursor === 5) break;
  }
  expect(seen).toMatchObject([1, 2, 3].map((checkpoint) => ({ sandboxId: mine, checkpoint })));
});
