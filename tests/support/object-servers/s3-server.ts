import { type Answer, type Dialect, ObjectServer, type Operation, type Received } from "./object-server.ts";
import { S3Bucket, type S3Behaviour, S3Refusal } from "./s3-bucket.ts";
import { readCompletion, xml } from "./s3-xml.ts";

export const s3AccessKeyId = "test-key";

/** S3 refuses requests whose time differs by more than this from the server's. */
const skewLimitMs = 15 * 60_000;

export interface S3ServerOptions {
  bucket: string;
  behaviour?: Partial<S3Behaviour>;
  /** The server's clock, which it sends in `Date` and compares with the time of a request. */
  now?: () => number;
}

/** Serves the part of the S3 REST API that an object store needs, path-style, with enforced preconditions. */
export function startS3Server(options: S3ServerOptions): { server: ObjectServer; bucket: S3Bucket } {
  const now = options.now ?? Date.now;
  const bucket = new S3Bucket(options.behaviour ?? {}, now);
  const dialect: Dialect = {
    understand: (request) => {
      const operation = understand(bucket, request);
      const run = () => {
        try {
          authorize(request, options.bucket, now());
          return dated(operation.run(), now());
        } catch (error) {
          if (!(error instanceof S3Refusal)) throw error;
          return dated(refusal(error.status, error.code, operation.key), now());
        }
      };
      return { ...operation, run };
    },
    refusal: (status, code, key) => dated(refusal(status, code, key), now()),
  };
  return { server: new ObjectServer(dialect), bucket };
}

function dated(answer: Answer, nowMs: number): Answer {
  return { ...answer, headers: { date: new Date(nowMs).toUTCString(), ...answer.headers } };
}

function refusal(status: number, code: string, key: string): Answer {
  const body = xml("Error", { Code: code, Message: `Refused with ${code}`, Key: key, RequestId: "1" });
  return { status, headers: { "content-type": "application/xml" }, body };
}

function authorize(request: Received, bucket: string, nowMs: number): void {
  const credential = /Credential=([^/]+)\//.exec(request.headers["authorization"] ?? "")?.[1];
  if (credential !== s3AccessKeyId) throw new S3Refusal(403, "InvalidAccessKeyId");
  const [, year, month, day, hour, minute, second] =
    /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(request.headers["x-amz-date"] ?? "") ?? [];
  const saidMs = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  if (!(Math.abs(saidMs - nowMs) <= skewLimitMs)) throw new S3Refusal(403, "RequestTimeTooSkewed");
  if (request.path[0] !== bucket) throw new S3Refusal(404, "NoSuchBucket");
}

function understand(bucket: S3Bucket, request: Received): Operation {
  const key = request.path.slice(1).join("/");
  const { query } = request;
  const uploadId = query.get("uploadId");
  const named = (name: string, run: () => Answer): Operation => ({ name, key, run });

  if (key === "" && query.has("uploads")) return named("ListMultipartUploads", () => listUploads(bucket, query));
  if (key === "") return named("ListObjectsV2", () => list(bucket, query));
  if (request.method === "POST" && query.has("uploads")) {
    return named("CreateMultipartUpload", () => created(key, bucket.createUpload(key, request.headers)));
  }
  if (request.method === "POST" && uploadId !== null) {
    const completed = () => bucket.completeUpload(key, uploadId, readCompletion(request.body), request.headers);
    return named("CompleteMultipartUpload", () => ({
      status: 200,
      body: xml("CompleteMultipartUploadResult", { Key: key, ETag: completed().etag }),
    }));
  }
  if (uploadId !== null && request.method === "PUT") {
    const part = Number(query.get("partNumber"));
    return named("UploadPart", () => {
      return { status: 200, headers: { etag: bucket.putPart(uploadId, part, request.body, request.headers) } };
    });
  }
  if (uploadId !== null && request.method === "DELETE") {
    return named("AbortMultipartUpload", () => {
      bucket.abortUpload(uploadId);
      return { status: 204 };
    });
  }
  switch (request.method) {
    case "PUT": {
      const put = bucket.beginPut(key, request.body, request.headers);
      return named("PutObject", () => ({ status: 200, headers: { etag: put().etag } }));
    }
    case "DELETE":
      return named("DeleteObject", () => {
        bucket.remove(key, request.headers);
        return { status: 204 };
      });
    case "HEAD":
      return named("HeadObject", () => ({ ...bucket.read(key, {}), body: "" }));
    default:
      return named("GetObject", () => bucket.read(key, request.headers));
  }
}

function created(key: string, uploadId: string): Answer {
  return { status: 200, body: xml("InitiateMultipartUploadResult", { Key: key, UploadId: uploadId }) };
}

function list(bucket: S3Bucket, query: URLSearchParams): Answer {
  const most = Math.min(Number(query.get("max-keys") ?? 1000), 1000);
  const after = query.get("continuation-token") ?? "";
  const matching = bucket.keys().filter((key) => key.startsWith(query.get("prefix") ?? "") && key > after);
  const page = matching.slice(0, most);
  const isTruncated = page.length < matching.length;
  const contents = page.flatMap((key) => {
    const object = bucket.objects.get(key);
    if (object === undefined) return [];
    const modified = new Date(object.modifiedAtMs).toISOString();
    return [{ Key: key, ETag: object.etag, Size: String(object.data.length), LastModified: modified }];
  });
  return {
    status: 200,
    headers: { "content-type": "application/xml" },
    body: xml("ListBucketResult", {
      IsTruncated: String(isTruncated),
      ...(isTruncated ? { NextContinuationToken: page.at(-1) ?? "" } : {}),
      Contents: contents,
    }),
  };
}

/** Lists one upload per page, so that a client has to request further pages. */
function listUploads(bucket: S3Bucket, query: URLSearchParams): Answer {
  const after = [query.get("key-marker") ?? "", query.get("upload-id-marker") ?? ""].join("\n");
  const [first, ...more] = [...bucket.uploads]
    .map(([uploadId, { key, beganAtMs }]) => ({ key, uploadId, beganAtMs, place: `${key}\n${uploadId}` }))
    .filter(({ key, place }) => key.startsWith(query.get("prefix") ?? "") && place > after)
    .toSorted((a, b) => (a.place < b.place ? -1 : 1));
  const entries = first === undefined ? [] : [first];
  return {
    status: 200,
    headers: { "content-type": "application/xml" },
    body: xml("ListMultipartUploadsResult", {
      IsTruncated: String(more.length > 0),
      ...(first === undefined ? {} : { NextKeyMarker: first.key, NextUploadIdMarker: first.uploadId }),
      Upload: entries.map(({ key, uploadId, beganAtMs }) => ({
        Key: key,
        UploadId: uploadId,
        Initiated: new Date(beganAtMs).toISOString(),
      })),
    }),
  };
}
