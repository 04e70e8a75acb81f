import { randomUUID } from "node:crypto";
import { openStore } from "@atoll/storage";
import { describe } from "vitest";
import { storeContract } from "../../packages/storage/test/support/store-contract.ts";
import { clearStore } from "./clear-store.ts";
import { outsideServer } from "./outside-server.ts";

const partBytes = 5 << 20;

const given = outsideServer("GCS", ["ENDPOINT", "BUCKET"]);

describe.skipIf(given === undefined)("an external GCS server", () => {
  storeContract(
    "gcs",
    async () => {
      const { ENDPOINT: endpoint = "", BUCKET: bucket = "" } = given ?? {};
      const prefix = `contract-${randomUUID()}`;
      const open = () => openStore({ kind: "gcs", endpoint, bucket, prefix, pieceBytes: partBytes });
      const store = await open();
      return { store, another: open, partBytes, close: () => clearStore(store) };
    },
    { timeoutMs: 120_000 },
  );
});
