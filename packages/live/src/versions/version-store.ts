import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { Artifact } from "../compiler/artifact.ts";
import { sha256 } from "../compiler/identity.ts";
import { emptyHistory, History } from "./history.ts";

export const defaultStateDir = join(homedir(), ".local", "state", "atoll", "live");

/** The history of one app on disk: `history.json`, and the artifacts by checksum in `objects`. */
export class VersionStore {
  readonly #folder: string;
  readonly #appFolder: string;

  /** Two apps of the same id in different folders have different histories. */
  constructor(stateDir: string, id: string, appFolder: string) {
    this.#folder = join(stateDir, `${id}-${sha256(appFolder).slice(0, 12)}`);
    this.#appFolder = appFolder;
  }

  /** What was stored, or an empty history if there is none that can be read. */
  async load(): Promise<History> {
    try {
      return History.parse(JSON.parse(await readFile(join(this.#folder, "history.json"), "utf8")));
    } catch {
      return emptyHistory(this.#appFolder);
    }
  }

  /** Stores the history with the artifacts that are new, and removes those that it no longer names. */
  async save(history: History, added: ReadonlyMap<string, Artifact>): Promise<void> {
    const objects = join(this.#folder, "objects");
    await mkdir(objects, { recursive: true, mode: 0o700 });
    for (const [key, artifact] of added) await replaceFile(join(objects, `${key}.json`), JSON.stringify(artifact));
    await replaceFile(join(this.#folder, "history.json"), JSON.stringify(history));
    const kept = new Set<string>();
    for (const [module, { versions }] of Object.entries(history.modules)) {
      for (const version of versions) kept.add(`${objectKey({ module, ...version })}.json`);
    }
    for (const name of await readdir(objects)) if (!kept.has(name)) await rm(join(objects, name), { force: true });
  }

  /** Reads an artifact and checks that it is the one that was stored. */
  async read(key: string): Promise<Artifact> {
    const path = join(this.#folder, "objects", `${key}.json`);
    try {
      const artifact = Artifact.parse(JSON.parse(await readFile(path, "utf8")));
      if (objectKey(artifact) === key && sha256(artifact.code) === artifact.codeSha256) return artifact;
    } catch (error) {
      if (!hasErrno(error, "ENOENT") && !(error instanceof Error)) throw error;
    }
    throw new SandboxError("file_error", `Cannot read the version in ${path}: it is missing or damaged`, {
      suggestion: "Choose another version, or reload the app from its folder.",
    });
  }

  async remove(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** What an artifact is stored under. */
export const objectKey = ({
  module,
  sourceSha256,
  codeSha256,
}: Pick<Artifact, "module" | "sourceSha256" | "codeSha256">): string =>
  sha256(`${module}\n${sourceSha256}\n${codeSha256}`);

/** A reader finds the old or the new content, and never a part of it. */
async function replaceFile(path: string, content: string): Promise<void> {
  const temporary = `${path}.${process.pid}`;
  await writeFile(temporary, content, { mode: 0o600 });
  await rename(temporary, path);
}
