import { rm } from "node:fs/promises";
import type { FaultPlan } from "./object-servers/faults.ts";
import { openTestS3 } from "./object-servers/test-s3.ts";
import { makeDataDir } from "./test-root.ts";

/** A store that several servers share. */
export interface SharedStore extends AsyncDisposable {
  /** Returns the flags for a server. `url` is the address of a proxy before the store. */
  flags(url?: string): string[];
}

export interface SharedS3Store extends SharedStore {
  url: string;
  setFaults(plan: FaultPlan): void;
  calm(): void;
}

const flagsFor = (setting: string): string[] => ["--metadata-store", setting, "--checkpoint-store", setting];

export async function sharedDirectory(): Promise<SharedStore> {
  const directory = await makeDataDir();
  return {
    flags: () => flagsFor(directory),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}

export async function sharedBucket(): Promise<SharedS3Store> {
  const { server, config, close } = await openTestS3();
  const url = config.kind === "s3" ? (config.endpoint ?? "") : "";
  return {
    url,
    flags: (endpoint = url) => flagsFor(JSON.stringify({ ...config, endpoint })),
    setFaults: (plan) => {
      server.faults = plan;
    },
    calm: () => server.calm(),
    [Symbol.asyncDispose]: close,
  };
}
