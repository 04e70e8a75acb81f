import { rm } from "node:fs/promises";
import { FileObjectStore } from "../../src/file/file-object-store.ts";
import { makeScratchDirectory } from "../support/scratch-directory.ts";
import { storeContract, type StorePlace } from "../support/store-contract.ts";

async function openPlace(): Promise<StorePlace> {
  const directory = await makeScratchDirectory();
  const store = await FileObjectStore.open(directory);
  const others: FileObjectStore[] = [];
  return {
    store,
    another: async () => {
      const other = await FileObjectStore.open(directory);
      others.push(other);
      return other;
    },
    partBytes: 2 << 20,
    close: async () => {
      await Promise.all([store, ...others].map((each) => each.close()));
      await rm(directory, { recursive: true });
    },
  };
}

storeContract("file", openPlace, { hasFaults: false });
