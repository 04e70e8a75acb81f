import { storeContract, type StorePlace } from "../../packages/storage/test/support/store-contract.ts";
import { contractFaults } from "../support/object-servers/faults.ts";
import { gcsPieceBytes, openTestGcs } from "../support/object-servers/test-gcs.ts";

async function openTestStore(): Promise<StorePlace> {
  const testStore = await openTestGcs();
  const open = () => testStore.open({ prefix: "some/where" });
  return {
    store: open(),
    another: async () => open(),
    inject: (fault) => {
      testStore.server.faults = contractFaults(fault);
    },
    partBytes: gcsPieceBytes,
    close: testStore.close,
  };
}

storeContract("gcs", openTestStore);
