import { randomUUID } from "node:crypto";
import { openStore, type ObjectStore } from "@atoll/storage";
import { describe } from "vitest";
import { storeContract } from "../../packages/storage/test/support/store-contract.ts";
import { clearStore } from "./clear-store.ts";
import { outsideServer } from "./outside-server.ts";

/** S3 allows no smaller parts. */
const partBytes = 5 << 20;

const given = outsideServer("S3", ["ENDPOINT", "BUCKET", "KEY_ID", "SECRET"]);

describe.skipIf(given === undefined)("an external S3 server", () => {
  storeContract(
    "s3",
    async () => {
      const prefix = `contract-${randomUUID()}`;
      const stores: ObjectStore[] = [];
      const open = async (): Promise<ObjectStore> => {
        const { ENDPOINT: endpoint = "", BUCKET: bucket = "", KEY_ID = "", SECRET = "" } = given ?? {};
        const credentials = { accessKeyId: KEY_ID, secretAccessKey: SECRET };
        const store = await openStore({ kind: "s3", endpoint, bucket, credentials, prefix, pieceBytes: partBytes });
        stores.push(store);
        return store;
      };
      const store = await open();
      const close = async () => {
        await clearStore(store);
        await Promise.all(stores.map((each) => each.close()));
      };
      return { store, another: open, partBytes, close };
    },
    { timeoutMs: 120_000 },
  );
});
