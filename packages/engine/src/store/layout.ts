import { createHash } from "node:crypto";
import { isAbsolute, join, resolve } from "node:path";
import { SandboxError, type ContainerId, type SandboxId } from "@atoll/protocol";

/** A checkpoint that is being imported has this suffix after its number. */
export const importingMark = ".coming";

/** The only place that knows the paths of a data directory. */
export class DataLayout {
  readonly root: string;

  constructor(dataDir: string) {
    // Overlayfs separates its options with ',' and its layers with ':'.
    if (!isAbsolute(dataDir) || /[,:\\"\s]/.test(dataDir)) {
      throw new SandboxError("invalid_argument", `Cannot use ${dataDir} as the data directory`, {
        suggestion: "Give an absolute path without spaces, quotes, commas, colons and backslashes.",
      });
    }
    this.root = resolve(dataDir);
  }

  /** Distinguishes the cgroups of this data directory from those of another one on the same machine. */
  get namespace(): string {
    return createHash("sha256").update(this.root).digest("hex").slice(0, 12);
  }

  get lockFile(): string {
    return join(this.root, "engine.lock");
  }

  get guestDir(): string {
    return join(this.root, "guest");
  }

  /** Returns the layer with one version of the guest in it. */
  guestLayer(name: string): string {
    return join(this.guestDir, name);
  }

  get sandboxesDir(): string {
    return join(this.root, "sandboxes");
  }

  /** Sealed layers, which never change; forked sandboxes share them. */
  get sealedDir(): string {
    return join(this.root, "layers");
  }

  /** Files that are being copied from a sandbox, or for one. They belong to no sandbox after a crash. */
  get copiesDir(): string {
    return join(this.root, "copies");
  }

  sandbox(id: SandboxId): SandboxLayout {
    return new SandboxLayout(join(this.sandboxesDir, id));
  }
}

export class SandboxLayout {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  get recordFile(): string {
    return join(this.dir, "record.json");
  }

  /** The files that the sandbox wrote: one pair of overlay directories per tree of its template. */
  get layersDir(): string {
    return join(this.dir, "layers");
  }

  layer(index: number): { upper: string; work: string } {
    const dir = join(this.layersDir, String(index));
    return { upper: join(dir, "upper"), work: join(dir, "work") };
  }

  get checkpointsDir(): string {
    return join(this.dir, "checkpoints");
  }

  checkpoint(n: number): CheckpointLayout {
    return new CheckpointLayout(join(this.checkpointsDir, String(n)));
  }

  /** Returns the directory of a checkpoint that is being imported, until all of it is here. */
  importingCheckpoint(n: number): CheckpointLayout {
    return new CheckpointLayout(`${this.checkpoint(n).dir}${importingMark}`);
  }

  /** Names the layers that the sandbox began with, if it began with more than its template. */
  get firstLayersFile(): string {
    return join(this.dir, "first-layers.json");
  }

  /** Exists while the container is frozen for a moment. */
  get frozenMark(): string {
    return join(this.dir, "frozen");
  }

  /** Exists while the sandbox is paused only for as long as it is being forked. */
  get resumeMark(): string {
    return join(this.dir, "wake");
  }

  /** For the program that runs the engine: what it keeps here about a sandbox is removed with the sandbox. */
  get ownerDir(): string {
    return join(this.dir, "owner");
  }

  get runsDir(): string {
    return join(this.dir, "run");
  }

  run(id: ContainerId): RunLayout {
    return new RunLayout(join(this.runsDir, id));
  }
}

/** The files of one container, which are removed with it. */
export class RunLayout {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  get fifos(): { in: string; out: string } {
    return { in: join(this.dir, "in"), out: join(this.dir, "out") };
  }

  get deadlineFile(): string {
    return join(this.dir, "deadline");
  }

  /** Bytes in this FIFO make the launcher read the deadline again. */
  get wakeFifo(): string {
    return join(this.dir, "wake");
  }

  /**
   * A server that may have given the container timer slack has this FIFO open for writing. The launcher removes the
   * slack when the server is gone.
   */
  get slackFifo(): string {
    return join(this.dir, "slack");
  }

  get rootfs(): string {
    return join(this.dir, "rootfs");
  }

  get specFile(): string {
    return join(this.dir, "config.json");
  }

  get runtimeState(): string {
    return join(this.dir, "state");
  }

  get stderrFile(): string {
    return join(this.dir, "stderr");
  }

  get exitFile(): string {
    return join(this.dir, "exit");
  }
}

/** The files of one checkpoint, except its layers, which sandboxes share. */
export class CheckpointLayout {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  get memoryDir(): string {
    return join(this.dir, "memory");
  }

  /** The needs of the image, for the server that has to finish the checkpoint. */
  get needsFile(): string {
    return join(this.dir, "needs.json");
  }

  /** An archive of the sandbox's `ownerDir` at that moment. */
  get ownerFile(): string {
    return join(this.dir, "owner.pack");
  }

  /** The outcome of the program that writes the memory image, written at its end. */
  get outcomeFile(): string {
    return join(this.dir, "outcome");
  }

  get manifestFile(): string {
    return join(this.dir, "manifest.json");
  }
}
