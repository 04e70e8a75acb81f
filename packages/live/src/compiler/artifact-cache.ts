import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { CompiledModule } from "./compile-job.ts";
import { compilerId, sha256 } from "./identity.ts";

const dayMs = 24 * 3_600_000;

export interface CacheLimits {
  /** Artifacts that were made longer ago are removed. */
  maxAgeMs?: number;
  /** The oldest are removed until the rest is not larger. */
  maxBytes?: number;
}

/**
 * Compiled modules on disk, by compiler, module and source, for all apps of a user and over restarts. What is read is
 * checked, since other programs can write there too; what is damaged counts as missing.
 */
export class ArtifactCache {
  readonly #folder: string;
  #isCleaned = false;

  constructor(cacheDir: string) {
    this.#folder = join(cacheDir, "compiled");
  }

  async read(module: string, source: string): Promise<CompiledModule | undefined> {
    try {
      const text = await readFile(this.#path(module, source), "utf8");
      const compiled = CompiledModule.parse(JSON.parse(text));
      return isIntact(compiled, module, source) ? compiled : undefined;
    } catch {
      return undefined;
    }
  }

  /** Modules with errors are not kept. A cache that cannot be written is no reason to fail. */
  async write(module: string, source: string, compiled: CompiledModule): Promise<void> {
    if (compiled.artifact === undefined) return;
    try {
      await mkdir(this.#folder, { recursive: true });
      const path = this.#path(module, source);
      const temporary = `${path}.${process.pid}`;
      await writeFile(temporary, JSON.stringify(compiled));
      await rename(temporary, path);
    } catch {
      return;
    }
    if (this.#isCleaned) return;
    this.#isCleaned = true;
    await this.clean();
  }

  /** Removes what is old or too much. Returns what is left. */
  async clean({ maxAgeMs = 30 * dayMs, maxBytes = 256 * 1024 * 1024 }: CacheLimits = {}): Promise<{
    files: number;
    bytes: number;
  }> {
    const names = await readdir(this.#folder).catch(() => []);
    const found: { path: string; bytes: number; atMs: number }[] = [];
    for (const name of names) {
      const path = join(this.#folder, name);
      const entry = await stat(path).catch(() => undefined);
      if (entry !== undefined) found.push({ path, bytes: entry.size, atMs: entry.mtimeMs });
    }
    let files = 0;
    let bytes = 0;
    const oldest = Date.now() - maxAgeMs;
    for (const entry of found.toSorted((a, b) => b.atMs - a.atMs)) {
      if (entry.atMs < oldest || bytes + entry.bytes > maxBytes) await rm(entry.path, { force: true });
      else {
        files += 1;
        bytes += entry.bytes;
      }
    }
    return { files, bytes };
  }

  #path(module: string, source: string): string {
    return join(this.#folder, `${sha256(`${compilerId}\n${module}\n${source}`)}.json`);
  }
}

/** Whether an artifact is what the compiler made of this source. */
export function isIntact({ artifact }: CompiledModule, module: string, source: string): boolean {
  return (
    artifact === undefined ||
    (artifact.module === module &&
      artifact.compiler === compilerId &&
      artifact.sourceSha256 === sha256(source) &&
      artifact.codeSha256 === sha256(artifact.code))
  );
}
