import type { routes } from "@atoll/protocol";
import type { z } from "zod";
import type { ByteSource, Http } from "./http/http.ts";

export type TemplateInfo = z.infer<typeof routes.listTemplates.reply>["templates"][number];

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/** The templates of the server: `atoll.templates`. */
export class Templates {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * What sandboxes can start from.
   *
   * @example
   * console.log((await atoll.templates.list()).map(({ name }) => name).includes("host")); // true
   */
  async list(options: SignalOption = {}): Promise<TemplateInfo[]> {
    return (await this.#http.call("listTemplates", options)).templates;
  }

  /** Makes a template from the tar archive of a root filesystem. */
  async import(name: string, tar: ByteSource, options: SignalOption = {}): Promise<TemplateInfo> {
    return this.#http.call("importTemplate", { params: { name }, bytes: tar, timeoutMs: undefined, ...options });
  }

  /** Removes a template that no sandbox uses. */
  async remove(name: string, options: SignalOption = {}): Promise<void> {
    await this.#http.call("removeTemplate", { params: { name }, ...options });
  }
}
