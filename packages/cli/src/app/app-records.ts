import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno, writeDurably } from "@atoll/host";
import { appStates, type AppInfo } from "@atoll/live";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import { CreateOptions, type KnownApp } from "./app-requests.ts";

/** The parts of an app's state that outlive its manager. */
const StoredInfo = z.looseObject({
  id: z.string(),
  state: z.enum(appStates),
  generation: z.int(),
  createdAt: z.string(),
});

/** An app that was created and not removed: how to start it again, and what was known about it last. */
const AppRecord = z.strictObject({
  format: z.literal(1),
  folder: z.string(),
  options: CreateOptions,
  info: StoredInfo.transform((info) => info as unknown as AppInfo),
});
export type AppRecord = z.infer<typeof AppRecord>;

/** The records of all apps, a file each. A record is written before anything of the app exists. */
export class AppRecords {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = join(directory, "apps");
  }

  /** The oldest first. */
  async list(): Promise<AppRecord[]> {
    const names = await readdir(this.#directory).catch((error: unknown) => {
      if (hasErrno(error, "ENOENT")) return [];
      throw error;
    });
    const ids = names.flatMap((name) => (name.endsWith(".json") ? [name.slice(0, -".json".length)] : []));
    const records = await Promise.all(ids.map((id) => this.read(id)));
    return records
      .filter((record) => record !== undefined)
      .toSorted((a, b) => a.info.createdAt.localeCompare(b.info.createdAt));
  }

  async read(id: string): Promise<AppRecord | undefined> {
    const path = this.#path(id);
    try {
      return AppRecord.parse(JSON.parse(await readFile(path, "utf8")));
    } catch (error) {
      if (hasErrno(error, "ENOENT")) return undefined;
      throw new SandboxError("storage_failed", `Cannot read ${path}: it is damaged`, {
        suggestion: `Remove the app with "atoll app rm ${id}", and create it again.`,
        cause: error,
      });
    }
  }

  async write(record: AppRecord): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await writeDurably(this.#path(record.info.id), `${JSON.stringify(record)}\n`);
  }

  async remove(id: string): Promise<void> {
    await rm(this.#path(id), { force: true });
  }

  #path(id: string): string {
    return join(this.#directory, `${id}.json`);
  }
}

/** An app that no manager has now. A state in which it ran was ended by the end of its manager. */
export function leftBehind({ info }: AppRecord): KnownApp {
  if (info.state === "stopped" || info.state === "error") return info;
  return { ...info, state: "interrupted", reason: "its manager was killed, or this machine was restarted", ports: [] };
}

/** What is known about an app before it was created. */
export function firstInfo(id: string, folder: string): AppInfo {
  const at = new Date().toISOString();
  return {
    id,
    state: "initializing",
    reason: undefined,
    folder,
    profile: "",
    isolation: "process",
    enforcement: [],
    generation: 0,
    lastGood: 0,
    restarts: 0,
    lastRestart: undefined,
    autoReload: false,
    createdAt: at,
    updatedAt: at,
    ports: [],
  };
}
