import { describe } from "vitest";
import { bigObjects } from "../../packages/storage/test/support/contract/big-objects.ts";
import { conditions } from "../../packages/storage/test/support/contract/conditions.ts";
import { storeContract, type StorePlace } from "../../packages/storage/test/support/store-contract.ts";
import { contractFaults } from "../support/object-servers/faults.ts";
import type { S3Behaviour } from "../support/object-servers/s3-bucket.ts";
import { openTestS3, s3PieceBytes } from "../support/object-servers/test-s3.ts";

async function openTestStore(behaviour: Partial<S3Behaviour>): Promise<StorePlace> {
  const testStore = await openTestS3(behaviour);
  const open = () => testStore.open({ prefix: "some/where" });
  return {
    store: open(),
    another: async () => open(),
    inject: (fault) => {
      testStore.server.faults = contractFaults(fault);
    },
    partBytes: s3PieceBytes,
    close: testStore.close,
  };
}

describe("S3 as documented", () => {
  storeContract("s3", () => openTestStore({}));
});

describe("S3 as radosgw implements it", () => {
  const open = () => openTestStore({ ifMatch: "bare", completeConditions: "ignored", deleteConditions: "ignored" });
  conditions(open);
  bigObjects(open);
});
