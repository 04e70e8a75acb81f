import { createHash } from "node:crypto";
import { SandboxError } from "@atoll/protocol";
import type { SandboxConfig } from "../../models/sandbox-config.ts";
import type { ListedSandbox, RunnerSandbox, SandboxClient, SnapshotStore, StartOptions } from "../sandbox-client.ts";
import { ContainerEngine, type ContainerEngineOptions } from "./container-engine.ts";
import { DockerSandbox } from "./docker-sandbox.ts";
import { DockerSnapshots, imageOf } from "./docker-snapshots.ts";

/** Containers of docker or podman. */
export class DockerClient implements SandboxClient {
  readonly kind = "docker";
  readonly snapshots: SnapshotStore;
  readonly #engine: ContainerEngine;

  constructor(options: ContainerEngineOptions = {}) {
    this.#engine = new ContainerEngine(options);
    this.snapshots = new DockerSnapshots(this.#engine);
  }

  async start({ config, name, labels, snapshot, network, signal }: StartOptions): Promise<RunnerSandbox> {
    const engine = this.#engine;
    const image = snapshot === undefined ? imageFor(config) : imageOf(snapshot);
    const hasNetwork = network && config.network.length > 0;
    if (hasNetwork) assertAnyHost(config);
    const { env, limits } = config;
    const pull = snapshot === undefined ? "missing" : "never";
    const id = await engine.run({ image, name, labels, env, limits, hasNetwork, pull }, signal);
    const sandbox = new DockerSandbox(engine, id, config);
    try {
      await sandbox.prepare(signal);
      return sandbox;
    } catch (error) {
      await engine.remove(id, new AbortController().signal).catch(() => undefined);
      throw error;
    }
  }

  async list(labels: Readonly<Record<string, string>>, signal: AbortSignal): Promise<ListedSandbox[]> {
    return this.#engine.list(labels, signal);
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#engine.remove(id, signal);
  }

  async baseDigest(config: SandboxConfig, signal: AbortSignal): Promise<string> {
    const image = imageFor(config);
    let found = await this.#engine.inspectImage(image, signal);
    if (found === undefined) {
      await this.#engine.pull(image, signal);
      found = await this.#engine.inspectImage(image, signal);
    }
    return createHash("sha256")
      .update(JSON.stringify([image, found?.id]))
      .digest("hex");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Containers live in the engine; there is no connection to close.
  }
}

function imageFor({ image }: SandboxConfig): string {
  if (image !== undefined) return image;
  throw new SandboxError("invalid_argument", "Cannot start a container: the configuration names no image", {
    suggestion: "Set sandbox.image, or use the client atoll, which needs none.",
  });
}

function assertAnyHost({ network }: SandboxConfig): void {
  if (network.every((rule) => rule === "*")) return;
  throw new SandboxError("unsupported", "Cannot limit the network of a container to some hosts", {
    suggestion: 'Set sandbox.network to ["*"], or use the client atoll, which can.',
    details: { network },
  });
}
