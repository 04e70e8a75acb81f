import { describe } from "vitest";
import { bigObjects } from "../../packages/storage/test/support/contract/big-objects.ts";
import { conditions } from "../../packages/storage/test/support/contract/conditions.ts";
import { storeContract, type StorePlace } from "../../packages/storage/test/support/store-contract.ts";
import { contractFaults } from "../support/object-servers/faults.ts";
import type { S3Behaviour } from "../support/object-servers/s3-bucket.ts";
import { openTestS3, s3PieceBytes } from "../support/object-servers/test-s3.ts";

async function openPlace(behaviour: Partial<S3Behaviour>): Promise<StorePlace> {
  const place = await openTestS3(behaviour);
  const open = () => place.open({ prefix: "some/where" });
  return {
    store: open(),
    another: async () => open(),
    inject: (fault) => {
      place.server.faults = contractFaults(fault);
    },
    partBytes: s3PieceBytes,
    close: place.close,
  };
}

describe("S3 as its documentation has it", () => {
  storeContract("s3", () => openPlace({}));
});

describe("S3 as radosgw has it", () => {
  const open = () => openPlace({ ifMatch: "bare", completeConditions: "ignored", deleteConditions: "ignored" });
  conditions(open);
  bigObjects(open);
});
