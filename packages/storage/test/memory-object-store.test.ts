import { MemoryObjectStore } from "./support/memory-object-store.ts";
import { storeContract } from "./support/store-contract.ts";

storeContract(
  "memory",
  async () => {
    const store = new MemoryObjectStore();
    return { store, partBytes: 2 << 20, close: () => store.close() };
  },
  { hasFaults: false },
);
