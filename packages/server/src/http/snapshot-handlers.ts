import type { Principal } from "../auth/principal.ts";
import { snapshotUserOf, type SnapshotUser } from "../snapshots/snapshot-user.ts";
import { ByteStream, type Handlers } from "./handlers.ts";
import type { Parts } from "./parts.ts";
import { keyOf } from "./sandbox-handlers.ts";

export function snapshotHandlers({ snapshots }: Parts) {
  const userOf = (principal: Principal | undefined): SnapshotUser => snapshotUserOf(keyOf(principal));
  return {
    takeSnapshot: ({ params, body, principal, note }) => {
      note({ snapshot: body.name });
      return snapshots.take(params.id, body.name, userOf(principal));
    },
    listSnapshots: async ({ principal }) => ({ snapshots: await snapshots.list(userOf(principal)) }),
    getSnapshot: ({ params, principal }) => snapshots.get(params.name, userOf(principal)),
    updateSnapshot: ({ params, body, principal, note }) => {
      note({ shared: body.shared });
      return snapshots.share(params.name, userOf(principal), body.shared);
    },
    removeSnapshot: ({ params, principal }) => snapshots.remove(params.name, userOf(principal)),
    exportSnapshot: async ({ params, principal, signal }) => {
      const { name, sizeBytes, pieces } = await snapshots.export(params.name, userOf(principal), signal);
      return new ByteStream(pieces, {
        "content-length": String(sizeBytes),
        "content-disposition": `attachment; filename="${name}.atoll"`,
      });
    },
    importSnapshot: ({ params, body, principal, signal }) =>
      snapshots.import(params.name, body, { user: userOf(principal), signal }),
  } satisfies Partial<Handlers>;
}
