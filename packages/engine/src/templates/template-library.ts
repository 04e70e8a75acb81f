import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError, TemplateName } from "@atoll/protocol";
import { isHostTemplateName, makeHostTemplate } from "./host-template.ts";
import { unfinishedPrefix } from "./publish-directory.ts";
import { importRootfs, type ImportOptions, type RootfsSource } from "./rootfs-template.ts";
import { readTemplate } from "./template-manifest.ts";
import type { Template } from "./template.ts";

/** Stands for the newest template made of this machine's own files. */
const hostName = "host";

export interface TemplateLibraryOptions {
  /** The filesystem that the template `host` is made of. */
  hostRoot?: string;
}

/**
 * The templates of one data directory. Each is complete from the moment it has its name, and never changes: whoever has
 * got one can use it for as long as it is not removed. What a crash leaves half done is removed by `sweep`.
 */
export class TemplateLibrary {
  readonly #directory: string;
  readonly #hostRoot: string;
  #host: Promise<Template> | undefined;

  constructor(dataDir: string, { hostRoot = "/" }: TemplateLibraryOptions = {}) {
    this.#directory = join(dataDir, "templates");
    this.#hostRoot = hostRoot;
  }

  /**
   * `host` is made when it is first asked for, and stays the same until the next start of the engine. The template that
   * comes back says in `name` which one it is exactly; asking for that name gives the same files again.
   */
  async get(name: TemplateName): Promise<Template> {
    if (name === hostName) return this.#getHost();
    const template = await readTemplate(join(this.#directory, name), name);
    if (template !== undefined) return template;
    throw new SandboxError("not_found", `Cannot find template ${name}`, {
      suggestion: `Use one of these: ${[hostName, ...(await this.list())].join(", ")}.`,
      details: { name },
    });
  }

  /** Everything that is stored, in alphabetical order. */
  async list(): Promise<TemplateName[]> {
    const names = await this.#entries();
    const parsed = names.flatMap((name) => TemplateName.safeParse(name).data ?? []);
    const templates = await Promise.all(
      parsed.map((name) => readTemplate(join(this.#directory, name), name).catch(() => undefined)),
    );
    return parsed.filter((_, index) => templates[index] !== undefined).toSorted();
  }

  /**
   * Rejects with `already_exists` when the name is taken and with `invalid_argument` when the source is not what it
   * should be.
   */
  async importRootfs(name: TemplateName, source: RootfsSource, options: ImportOptions): Promise<Template> {
    if (name === hostName || isHostTemplateName(name)) {
      throw new SandboxError(
        "invalid_argument",
        `Cannot import a template as ${name}: the name stands for this machine's own files`,
      );
    }
    return importRootfs(this.#directory, name, source, options);
  }

  /** Idempotent. Sandboxes that are made of it lose their files; whether there are any is for the caller to know. */
  async remove(name: TemplateName): Promise<void> {
    if (name === hostName)
      throw new SandboxError("invalid_argument", "Cannot remove the template host: it is made when it is asked for");
    // Under the other name nobody finds it half removed.
    const leaving = join(this.#directory, `${unfinishedPrefix}removed-${name}-${process.pid}-${performance.now()}`);
    try {
      await rename(join(this.#directory, name), leaving);
    } catch (error) {
      if (hasErrno(error, "ENOENT")) return;
      throw error;
    }
    const host = await this.#host?.catch(() => undefined);
    if (host?.name === name) this.#host = undefined;
    await rm(leaving, { recursive: true, force: true });
  }

  /**
   * Removes what a crash has left half done. Only for the one engine that holds the data directory's lock, at its
   * start.
   */
  async sweep(): Promise<void> {
    const left = (await this.#entries()).filter((name) => name.startsWith(unfinishedPrefix));
    await Promise.all(left.map((name) => rm(join(this.#directory, name), { recursive: true, force: true })));
  }

  #getHost(): Promise<Template> {
    this.#host ??= makeHostTemplate({ templatesDir: this.#directory, hostRoot: this.#hostRoot }).catch(
      (error: unknown) => {
        // The next who asks tries again.
        this.#host = undefined;
        throw error;
      },
    );
    return this.#host;
  }

  async #entries(): Promise<string[]> {
    try {
      return await readdir(this.#directory);
    } catch (error) {
      if (hasErrno(error, "ENOENT")) return [];
      throw error;
    }
  }
}
