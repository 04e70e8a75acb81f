import type { FileEntry } from "@atoll/engine";
import type { FileInfo, WatchLine } from "@atoll/protocol";
import { packDirectory } from "../archives/pack-directory.ts";
import { unpackArchive } from "../archives/unpack-archive.ts";
import { ByteStream, LineStream, type Handlers } from "./handlers.ts";
import { awaitFirstPiece } from "./keep-alive-lines.ts";
import { openDownload } from "./open-download.ts";
import type { Parts } from "./parts.ts";

export function fileHandlers({ manager, watches, signer, baseUrl }: Parts) {
  const stat = async (id: Parameters<typeof manager.files>[0], path: string, user: string): Promise<FileInfo> => {
    // The sandbox may have been paused between the change and this call.
    await manager.pauseResume.wake(id);
    return fileInfo(await manager.files(id).stat(path, { user }));
  };
  return {
    readFile: async ({ params, query, range, ifRange, signal }) => {
      const { path, user, offset, length } = query;
      const files = manager.files(params.id);
      // A page from a sandbox must not run as a page of this server.
      const attachment = { "content-disposition": "attachment" };
      if (range !== undefined && offset === undefined && length === undefined) {
        const { status, headers, pieces } = await openDownload(files, path, { user, signal, range, ifRange });
        return new ByteStream(pieces, { ...headers, ...attachment }, status);
      }
      const part = { ...(offset === undefined ? {} : { offset }), ...(length === undefined ? {} : { length }) };
      return new ByteStream(await awaitFirstPiece(files.read(path, { user, signal, ...part })), attachment);
    },
    writeFile: async ({ params, query, body }) => {
      const { path, user, mode, how } = query;
      await manager.files(params.id).write(path, body, { user, how, mode: Number.parseInt(mode, 8) });
      return stat(params.id, path, user);
    },
    removeFile: ({ params, query }) => manager.files(params.id).remove(query.path, query),
    statFile: ({ params, query }) => stat(params.id, query.path, query.user),
    listFiles: async ({ params, query, signal }) => {
      const files = await manager.files(params.id).list(query.path, { ...query, signal });
      return { files: files.map(fileInfo) };
    },
    makeDirectory: async ({ params, body }) => {
      await manager.files(params.id).mkdir(body.path, { ...body, mode: Number.parseInt(body.mode, 8) });
      return stat(params.id, body.path, body.user);
    },
    renameFile: async ({ params, body }) => {
      await manager.files(params.id).rename(body.from, body.to, body);
      return stat(params.id, body.to, body.user);
    },
    watchFiles: async ({ params, query, signal }) => {
      const { id, messages } = watches.follow(manager.files(params.id), { ...query, sandboxId: params.id }, signal);
      const lines = (async function* (): AsyncGenerator<WatchLine, void, void> {
        for await (const message of messages) yield { ...message, watch: id };
      })();
      return new LineStream<WatchLine>(await awaitFirstPiece(lines), {
        heartbeat: () => ({ kind: "heartbeat", atMs: Date.now() }),
        shutdown: () => ({ kind: "shutdown" }),
        refused: (error) => ({ kind: "refused", error }),
      });
    },
    packFiles: async ({ params, query, signal }) =>
      new ByteStream(await packDirectory(manager.engine.get(params.id), query.path, { user: query.user, signal })),
    unpackFiles: ({ params, query, body, signal }) =>
      unpackArchive(manager.engine.get(params.id), query.path, body, { user: query.user, signal }),
    signFile: async ({ params, body, principal, requester: { who, holder } }) => {
      const { path, user, method, expiresInMs } = body;
      const expiresAtMs = Date.now() + expiresInMs;
      const by = holder === undefined ? {} : { by: { who, holder } };
      const key = principal?.kind === "key" ? { keyId: principal.key.id } : {};
      const target = signer.sign({ sandboxId: params.id, path, user, method, expiresAtMs, ...by, ...key });
      return { url: `${baseUrl()}${target}`, expiresAtMs };
    },
  } satisfies Partial<Handlers>;
}

function fileInfo({ name, type, mode, uid, gid, sizeBytes, modifiedAtMs, target }: FileEntry): FileInfo {
  return { name, type, mode, uid, gid, sizeBytes, modifiedAtMs, ...(target === undefined ? {} : { target }) };
}
