import { afterEach, describe, expect, test } from "vitest";
import type { ObjectStore } from "../../packages/storage/src/index.ts";
import { collect } from "../../packages/storage/test/support/contract/use-place.ts";
import type { FaultPlan } from "../support/object-servers/faults.ts";
import { useRandomFiles } from "../support/object-servers/random-file.ts";
import { openTestGcs } from "../support/object-servers/test-gcs.ts";
import { openTestS3 } from "../support/object-servers/test-s3.ts";

interface TestStore {
  server: { faults: FaultPlan };
  open: (options: { maxAttempts: number }) => ObjectStore;
  close: () => Promise<void>;
}

const makeFile = useRandomFiles();
const opened: TestStore[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((testStore) => testStore.close()));
});

/** Responses with status 200 from a gateway, a login page or a broken store. */
const answers = [
  { type: "text/html", body: "<html><body>Please log in</body></html>" },
  { type: "application/xml", body: "<Error><Code>InternalError</Code><Message>Try again</Message></Error>" },
  { type: "application/json", body: '{"error":{"code":500,"message":"Try again"}}' },
  { type: "application/json", body: "{}" },
  { type: "text/plain", body: "" },
];

const calls: Record<string, (store: ObjectStore) => Promise<unknown>> = {
  "a write": (store) => store.put("a", Buffer.from("next")),
  "a write under a condition": (store) => store.put("b", Buffer.from("next"), { if: "absent" }),
  "an upload": async (store) => {
    const { path, ...checksum } = await makeFile(1_000);
    return store.upload("c", path, checksum);
  },
  "an upload in pieces": async (store) => {
    const { path, ...checksum } = await makeFile(12 << 20);
    return store.upload("d", path, checksum);
  },
  "a look": (store) => store.stat("a"),
  "a read": (store) => store.get("a"),
  "a list": (store) => collect(store.list("")),
};

describe.for([
  ["S3", openTestS3, "CompleteMultipartUpload"],
  ["Google Cloud Storage", openTestGcs, "objects.compose"],
] as const)("a store in a bucket of %s", ([, openTestStore, lastOfUpload]) => {
  test("does not report an upload as done if a proxy answers its last request", async () => {
    const testStore: TestStore = await openTestStore();
    opened.push(testStore);
    const store = testStore.open({ maxAttempts: 1 });
    const { path, ...checksum } = await makeFile(6 << 20);
    for (const { type, body } of answers) {
      const fault = { do: "answer", headers: { "content-type": type }, body } as const;
      testStore.server.faults = ({ operation }) => (operation === lastOfUpload ? fault : undefined);
      await expect(store.upload("a", path, checksum)).rejects.toMatchObject({ code: "unavailable" });
    }
    expect(await collect(store.list(""))).toEqual([]);
  });

  test.for(Object.keys(calls))("does not report %s as done if a proxy answers it", async (call) => {
    const testStore: TestStore = await openTestStore();
    opened.push(testStore);
    const store = testStore.open({ maxAttempts: 1 });
    await store.put("a", Buffer.from("first"));
    // By now the store has finished its probe of the server.
    await store.put("z", Buffer.from("first"), { if: "absent" });
    for (const { type, body } of answers) {
      testStore.server.faults = () => ({ do: "answer", headers: { "content-type": type }, body });
      await expect(calls[call]?.(store)).rejects.toMatchObject({ code: "unavailable" });
    }
    testStore.server.faults = () => undefined;
    const found = await collect(store.list(""));
    expect(found.map(({ key }) => key)).toEqual(["a", "z"]);
  });
});
