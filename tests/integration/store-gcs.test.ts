import { storeContract, type StorePlace } from "../../packages/storage/test/support/store-contract.ts";
import { contractFaults } from "../support/object-servers/faults.ts";
import { gcsPieceBytes, openTestGcs } from "../support/object-servers/test-gcs.ts";

async function openPlace(): Promise<StorePlace> {
  const place = await openTestGcs();
  const open = () => place.open({ prefix: "some/where" });
  return {
    store: open(),
    another: async () => open(),
    inject: (fault) => {
      place.server.faults = contractFaults(fault);
    },
    partBytes: gcsPieceBytes,
    close: place.close,
  };
}

storeContract("gcs", openPlace);
