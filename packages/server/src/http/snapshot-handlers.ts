import { seenBy } from "../auth/principal.ts";
import { ByteStream, type Handlers } from "./handlers.ts";
import type { Parts } from "./parts.ts";
import { keyOf } from "./sandbox-handlers.ts";

export function snapshotHandlers({ snapshots }: Parts) {
  return {
    takeSnapshot: ({ params, body, principal, note }) => {
      note({ snapshot: body.name });
      return snapshots.take(params.id, body.name, keyOf(principal).id);
    },
    listSnapshots: async ({ principal }) => ({ snapshots: await snapshots.list(seenBy(principal)) }),
    getSnapshot: ({ params, principal }) => snapshots.get(params.name, seenBy(principal)),
    removeSnapshot: ({ params, principal }) => snapshots.remove(params.name, seenBy(principal)),
    exportSnapshot: async ({ params, principal, signal }) => {
      const { sizeBytes, pieces } = await snapshots.export(params.name, seenBy(principal), signal);
      return new ByteStream(pieces, {
        "content-length": String(sizeBytes),
        "content-disposition": `attachment; filename="${params.name}.atoll"`,
      });
    },
    importSnapshot: ({ params, body, principal, signal }) =>
      snapshots.import(params.name, body, { owner: keyOf(principal).id, signal }),
  } satisfies Partial<Handlers>;
}
