import { createHash } from "node:crypto";
import { isSandboxError } from "@atoll/protocol";
import { Sandbox, type Atoll } from "@atoll/sdk";
import type { SandboxConfig } from "../../models/sandbox-config.ts";
import type { ListedSandbox, RunnerSandbox, SandboxClient, SnapshotStore, StartOptions } from "../sandbox-client.ts";
import { AtollSandbox } from "./atoll-sandbox.ts";
import { AtollSnapshots } from "./atoll-snapshots.ts";

export interface AtollClientOptions {
  /** The connection, which is closed with this client. */
  atoll: Atoll;
  /** `local` is for tests of the runner itself: it is no boundary. */
  driver?: "gvisor" | "local";
}

/** How long a sandbox of a runner that has died may do nothing before the server removes it. */
const idleMs = 60 * 60_000;

/** Beside the labels of the run. */
const nameLabel = "atoll.name";

/** What an environment is made from, where the template shows the machine's own programs. */
const describeBase = `
for file in /etc/os-release /var/lib/dpkg/status /etc/debian_version; do
  test -r "$file" && echo "$file" && cat "$file"
done
for directory in /usr/bin /usr/local/bin /usr/lib/python3/dist-packages /usr/local/lib /usr/lib/node_modules; do
  test -d "$directory" && ls -ln --time-style=+%s "$directory"
done
true`;
const describeTimeoutMs = 60_000;

/** Sandboxes of an Atoll server. */
export class AtollClient implements SandboxClient {
  readonly kind = "atoll";
  readonly snapshots: SnapshotStore;
  readonly #atoll: Atoll;
  readonly #driver: "gvisor" | "local";
  readonly #digests = new Map<string, Promise<string>>();

  constructor({ atoll, driver = "gvisor" }: AtollClientOptions) {
    this.#atoll = atoll;
    this.#driver = driver;
    this.snapshots = new AtollSnapshots(atoll);
  }

  async start({ config, name, labels, snapshot, network, signal }: StartOptions): Promise<RunnerSandbox> {
    const sandbox = await Sandbox.create({
      client: this.#atoll,
      driver: this.#driver,
      ...(snapshot === undefined ? { template: config.template } : { snapshot }),
      limits: config.limits,
      labels: { ...labels, [nameLabel]: name },
      env: config.env,
      egress: { allow: network ? config.network : [] },
      timeouts: { idleMs },
      signal,
    });
    const started = new AtollSandbox(sandbox, config);
    try {
      // The files of a snapshot have it.
      if (snapshot === undefined) await started.makeWorkdir(signal);
      return started;
    } catch (error) {
      await sandbox.kill().catch(() => undefined);
      throw error;
    }
  }

  async list(labels: Readonly<Record<string, string>>, signal: AbortSignal): Promise<ListedSandbox[]> {
    const found: ListedSandbox[] = [];
    for await (const { id, state, labels: own } of this.#atoll.sandboxes({ labels, signal })) {
      if (!["killing", "killed", "released"].includes(state)) found.push({ id, labels: own });
    }
    return found;
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    try {
      await Sandbox.kill(id, { client: this.#atoll, signal });
    } catch (error) {
      if (!isSandboxError(error, "not_found")) throw error;
    }
  }

  async baseDigest(config: SandboxConfig, signal: AbortSignal): Promise<string> {
    const known = this.#digests.get(config.template);
    if (known !== undefined) return known;
    const digest = this.#readBase(config, signal);
    this.#digests.set(config.template, digest);
    // A failure is not an answer: the next caller asks again.
    digest.catch(() => this.#digests.delete(config.template));
    return digest;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#atoll[Symbol.asyncDispose]();
  }

  /** The server does not say what a template consists of, so a sandbox that is made from it does. */
  async #readBase({ template }: SandboxConfig, signal: AbortSignal): Promise<string> {
    const client = this.#atoll;
    await using sandbox = await Sandbox.create({ client, driver: this.#driver, template, signal });
    const { stdout } = await sandbox.commands.run(["sh", "-c", describeBase], {
      user: "root",
      timeoutMs: describeTimeoutMs,
      check: true,
      signal,
    });
    return createHash("sha256")
      .update(JSON.stringify([template, this.#driver, stdout]))
      .digest("hex");
  }
}
