import { GvisorHost, type AppHost, type AppProcess, type LaunchOptions } from "@atoll/live";
import { SandboxError } from "@atoll/protocol";
import type { Cli } from "../cli.ts";
import { existingServer, privateServer, type ServerPlace } from "../runner/find-server.ts";
import type { Settings } from "../settings/settings.ts";

/**
 * The level `gvisor` on the server that the settings name. If there is none, a private one is started for an app that
 * asks for the level, and is used for as long as this host.
 */
export class ServerHost implements AppHost {
  readonly level = "gvisor";
  readonly #cli: Pick<Cli, "environment" | "signal">;
  #settings: Settings | undefined;
  #found: { place: ServerPlace; host: GvisorHost } | undefined;
  #finding: Promise<unknown> = Promise.resolve();

  constructor(cli: Pick<Cli, "environment" | "signal">) {
    this.#cli = cli;
  }

  /** What a person has to know about a private server. */
  get note(): string | undefined {
    return this.#found?.place.note;
  }

  /** The server for apps that are started from now on. Those that run keep theirs, so all have the same. */
  use(settings: Settings): void {
    const inUse = this.#found === undefined ? undefined : this.#settings?.url.value;
    if (inUse !== undefined && inUse !== settings.url.value) {
      throw new SandboxError("in_use", `Cannot use the server at ${settings.url.value}: apps use the one at ${inUse}`, {
        suggestion: `Name that server, or remove the apps that "atoll app ls" shows at the level gvisor first.`,
      });
    }
    this.#settings = settings;
  }

  async missing(isAskedFor = false): Promise<string[]> {
    const found = await this.#find(isAskedFor);
    if (found === undefined) return ["an Atoll server (none is named, and none is at the default address)"];
    return found.host.missing();
  }

  async enforcement(): Promise<string[]> {
    return (await this.#host()).enforcement();
  }

  async launch(options: LaunchOptions): Promise<AppProcess> {
    return (await this.#host()).launch(options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#found?.host[Symbol.asyncDispose]();
    await this.#found?.place[Symbol.asyncDispose]();
  }

  async #host(): Promise<GvisorHost> {
    const found = await this.#find(true);
    if (found === undefined) throw new SandboxError("unavailable", "Cannot run the app: there is no server");
    return found.host;
  }

  /** Two apps that need a server at the same time start one. */
  #find(mayStart: boolean): Promise<{ place: ServerPlace; host: GvisorHost } | undefined> {
    const find = async () => {
      const settings = this.#settings;
      if (this.#found !== undefined || settings === undefined) return this.#found;
      const place =
        (await existingServer(settings, this.#cli.signal)) ??
        (mayStart ? await privateServer(this.#cli, settings) : undefined);
      if (place === undefined) return undefined;
      this.#found = { place, host: new GvisorHost({ baseUrl: place.url, apiKey: place.key }) };
      return this.#found;
    };
    const finding = this.#finding.then(find);
    this.#finding = finding.catch(() => undefined);
    return finding;
  }
}
