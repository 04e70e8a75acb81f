import type { SnapshotStore } from "../sandbox-client.ts";
import type { ContainerEngine } from "./container-engine.ts";

const repository = "atoll-snapshot";

/** The image that a snapshot of this name is. */
export const imageOf = (name: string): string => `${repository}:${name}`;

/** Snapshots as images of one repository, by tag. */
export class DockerSnapshots implements SnapshotStore {
  readonly #engine: ContainerEngine;

  constructor(engine: ContainerEngine) {
    this.#engine = engine;
  }

  async has(name: string, signal: AbortSignal): Promise<boolean> {
    return (await this.#engine.inspectImage(imageOf(name), signal)) !== undefined;
  }

  async list(signal: AbortSignal): Promise<{ name: string; bytes: number; createdAtMs: number }[]> {
    const names = await this.#engine.listTags(repository, signal);
    const found = await Promise.all(
      names.map(async (name) => {
        const image = await this.#engine.inspectImage(imageOf(name), signal);
        if (image === undefined) return [];
        const bytes = await this.#engine.sizeOfTopLayer(imageOf(name), signal);
        return [{ name, bytes, createdAtMs: image.createdAtMs }];
      }),
    );
    return found.flat();
  }

  async remove(name: string, signal: AbortSignal): Promise<void> {
    await this.#engine.removeImage(imageOf(name), signal);
  }
}
