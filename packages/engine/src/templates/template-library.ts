import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError, TemplateName } from "@atoll/protocol";
import { isHostTemplateName, makeHostTemplate } from "./host-template.ts";
import { unfinishedPrefix } from "./publish-directory.ts";
import { importRootfs, type ImportOptions, type RootfsSource } from "./rootfs-template.ts";
import { readTemplate } from "./template-manifest.ts";
import type { Template } from "./template.ts";

/** This name means the newest template made of this machine's own files. */
const hostName = "host";

export interface TemplateLibraryOptions {
  /** The filesystem that the template `host` is made of. */
  hostRoot?: string;
}

/**
 * The templates of one data directory. Each is complete from the moment it has its name, and never changes: a caller
 * can use it for as long as it is not removed. `sweep` removes the leftovers of a crash.
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
   * `host` is made when it is first requested, and stays the same until the next start of the engine. The `name` of the
   * returned template says which one it is exactly; a request for that name gives the same files again.
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

  /** Returns all stored templates, in alphabetical order. */
  async list(): Promise<TemplateName[]> {
    const names = await this.#entries();
    const parsed = names.flatMap((name) => TemplateName.safeParse(name).data ?? []);
    const templates = await Promise.all(
      parsed.map((name) => readTemplate(join(this.#directory, name), name).catch(() => undefined)),
    );
    return parsed.filter((_, index) => templates[index] !== undefined).toSorted();
  }

  /**
   * Rejects with `already_exists` when the name is taken and with `invalid_argument` when the source cannot be used.
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

  /**
   * Removes a template. Sandboxes that are made of it lose their files; the caller has to know whether there are any.
   * Idempotent.
   */
  async remove(name: TemplateName): Promise<void> {
    if (name === hostName)
      throw new SandboxError("invalid_argument", "Cannot remove the template host: it is made when it is requested");
    // A half-removed template has another name, under which it is not used.
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
   * Removes the leftovers of a crash. Only the engine that holds the data directory's lock may call it, at its start.
   */
  async sweep(): Promise<void> {
    const left = (await this.#entries()).filter((name) => name.startsWith(unfinishedPrefix));
    await Promise.all(left.map((name) => rm(join(this.#directory, name), { recursive: true, force: true })));
  }

  #getHost(): Promise<Template> {
    this.#host ??= makeHostTemplate({ templatesDir: this.#directory, hostRoot: this.#hostRoot }).catch(
      (error: unknown) => {
        // The next request tries again.
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
