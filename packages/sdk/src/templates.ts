import type { routes } from "@atoll/protocol";
import type { z } from "zod";
import type { ByteSource } from "./http/exchange.ts";
import type { Http } from "./http/http.ts";

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
   * Lists the templates that sandboxes can start from.
   *
   * @example
   * console.log((await atoll.templates.list()).map(({ name }) => name).includes("host")); // true
   */
  async list(options: SignalOption = {}): Promise<TemplateInfo[]> {
    return (await this.#http.call("listTemplates", options)).templates;
  }

  /**
   * Makes a template from the tar archive of a root filesystem.
   *
   * @example
   * await sandbox.files.write("root/etc/motd", "hello");
   * await sandbox.files.mkdir("root/usr/bin");
   * const template = await atoll.templates.import("tiny", await sandbox.files.download("root"));
   * console.log(template.name); // tiny
   */
  async import(name: string, tar: ByteSource, options: SignalOption = {}): Promise<TemplateInfo> {
    return this.#http.call("importTemplate", { params: { name }, bytes: tar, timeoutMs: undefined, ...options });
  }

  /**
   * Removes a template that no sandbox uses.
   *
   * @example
   * await sandbox.files.write("base/etc/motd", "hello");
   * await atoll.templates.import("short-lived", await sandbox.files.download("base"));
   * await atoll.templates.remove("short-lived");
   */
  async remove(name: string, options: SignalOption = {}): Promise<void> {
    await this.#http.call("removeTemplate", { params: { name }, ...options });
  }
}
