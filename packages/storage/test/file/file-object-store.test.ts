import { rm } from "node:fs/promises";
import { FileObjectStore } from "../../src/file/file-object-store.ts";
import { makeScratchDirectory } from "../support/scratch-directory.ts";
import { storeContract } from "../support/store-contract.ts";

storeContract("file", async () => {
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
});
