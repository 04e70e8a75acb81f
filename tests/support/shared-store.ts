import { rm } from "node:fs/promises";
import type { FaultPlan } from "./object-servers/faults.ts";
import { openS3Place } from "./object-servers/s3-place.ts";
import { makeDataDir } from "./test-root.ts";

/** A store for several servers. */
export interface SharedStore extends AsyncDisposable {
  /** For a server; `url`: another way to the same store, where it is behind one. */
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
  const { server, config, close } = await openS3Place();
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
