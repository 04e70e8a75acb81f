import { GcsBucket, GcsRefusal, type GcsBehaviour, type GcsFields } from "./gcs-bucket.ts";
import { type Answer, type Dialect, ObjectServer, type Operation, type Received } from "./object-server.ts";

export interface GcsServerOptions {
  bucket: string;
  behaviour?: Partial<GcsBehaviour>;
}

/** Serves the part of the JSON API of Google Cloud Storage that an object store needs, with enforced preconditions. */
export function startGcsServer(options: GcsServerOptions): { server: ObjectServer; bucket: GcsBucket } {
  const bucket = new GcsBucket(options.behaviour ?? {});
  const dialect: Dialect = {
    understand: (request) => {
      const operation = understand(bucket, request);
      const run = () => {
        try {
          if (bucketIn(request) !== options.bucket) throw new GcsRefusal(404, "The specified bucket does not exist.");
          return operation.run();
        } catch (error) {
          if (!(error instanceof GcsRefusal)) throw error;
          return refusal(error.status, error.message);
        }
      };
      return { ...operation, run };
    },
    refusal: (status, code) => refusal(status, code),
  };
  return { server: new ObjectServer(dialect), bucket };
}

const json = (body: unknown, headers: Record<string, string> = {}): Answer => ({
  status: 200,
  headers: { "content-type": "application/json; charset=utf-8", ...headers },
  body: JSON.stringify(body),
});

function refusal(status: number, message: string): Answer {
  return { ...json({ error: { code: status, message, errors: [{ message, reason: message }] } }), status };
}

/** Returns the path after `/storage/v1/b/<bucket>/o` or `/upload/storage/v1/b/<bucket>/o`. */
const pathIn = (request: Received): string[] => request.path.slice(request.path[0] === "upload" ? 4 : 3);

const bucketIn = (request: Received): string => pathIn(request)[0] ?? "";

function understand(bucket: GcsBucket, request: Received): Operation {
  const { method, query } = request;
  const [, , name = "", verb] = pathIn(request);
  const named = (operation: string, key: string, run: () => Answer): Operation => ({ name: operation, key, run });
  if (request.path[0] === "upload") return understandUpload(bucket, request);
  if (name === "") return named("objects.list", "", () => list(bucket, query));
  if (verb === "compose") {
    const { sourceObjects, destination } = JSON.parse(request.body.toString()) as {
      sourceObjects: { name: string }[];
      destination: GcsFields;
    };
    const sources = sourceObjects.map((source) => source.name);
    return named("objects.compose", name, () => json(bucket.compose(name, sources, destination, query)));
  }
  if (method === "DELETE") {
    return named("objects.delete", name, () => {
      bucket.remove(name, query);
      return { status: 204 };
    });
  }
  if (query.get("alt") === "media") {
    return named("objects.get media", name, () => media(bucket, name, request));
  }
  return named("objects.get", name, () => json(bucket.describe(name, query)));
}

function understandUpload(bucket: GcsBucket, request: Received): Operation {
  const { query, headers, body } = request;
  const name = query.get("name") ?? "";
  const session = query.get("upload_id");
  if (session !== null) {
    const key = bucket.sessions.get(session)?.name ?? "";
    const run = () => {
      const outcome = bucket.proceed(session, headers["content-range"] ?? "", body);
      if (!("receivedBytes" in outcome)) return json(outcome);
      const last = Number(outcome.receivedBytes) - 1;
      return { status: 308, headers: last < 0 ? {} : { range: `bytes=0-${last}` } };
    };
    return { name: "resumable upload", key, run };
  }
  if (query.get("uploadType") === "resumable") {
    const run = () => {
      const fields = (body.length === 0 ? {} : JSON.parse(body.toString())) as GcsFields;
      const uri = new URL(`http://${headers["host"]}/${request.path.join("/")}`);
      uri.searchParams.set("upload_id", bucket.begin(name, fields, query));
      return json({}, { location: uri.href });
    };
    return { name: "resumable begin", key: name, run };
  }
  return {
    name: "objects.insert",
    key: name,
    run: () => {
      const { fields, data } = readRelated(headers["content-type"] ?? "", body);
      return json(bucket.insert(name, data, fields, query));
    },
  };
}

/** Reads the two parts of a `multipart/related` body: the metadata and the bytes. */
function readRelated(contentType: string, body: Buffer): { fields: GcsFields; data: Buffer } {
  const boundary = `--${/boundary=("?)([^";]+)\1/.exec(contentType)?.[2]}`;
  const gap = Buffer.from("\r\n\r\n");
  const fieldsAt = body.indexOf(gap) + gap.length;
  const secondAt = body.indexOf(boundary, fieldsAt);
  const dataAt = body.indexOf(gap, secondAt) + gap.length;
  const endAt = body.lastIndexOf(`\r\n${boundary}--`);
  return {
    fields: JSON.parse(body.subarray(fieldsAt, secondAt).toString()) as GcsFields,
    data: Buffer.from(body.subarray(dataAt, endAt)),
  };
}

function media(bucket: GcsBucket, name: string, request: Received): Answer {
  const { data, generation } = bucket.read(name, request.query);
  const headers = { "content-type": "application/octet-stream", "x-goog-generation": String(generation) };
  const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers["range"] ?? "");
  if (range === null) return { status: 200, headers, body: data };
  const first = Number(range[1]);
  const last = Math.min(Number(range[2]), data.length - 1);
  if (first >= data.length) throw new GcsRefusal(416, "Requested range not satisfiable");
  const contentRange = `bytes ${first}-${last}/${data.length}`;
  return { status: 206, headers: { ...headers, "content-range": contentRange }, body: data.subarray(first, last + 1) };
}

function list(bucket: GcsBucket, query: URLSearchParams): Answer {
  const most = Math.min(Number(query.get("maxResults") ?? 1_000), 1_000);
  const after = query.get("pageToken") ?? "";
  const matching = bucket.names().filter((name) => name.startsWith(query.get("prefix") ?? "") && name > after);
  const page = matching.slice(0, most);
  const next = page.length < matching.length ? { nextPageToken: page.at(-1) } : {};
  const items = page.map((name) => bucket.describe(name, new URLSearchParams()));
  return json({ kind: "storage#objects", ...(items.length === 0 ? {} : { items }), ...next });
}
