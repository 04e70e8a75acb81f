import { createHash } from "node:crypto";
import { isAbsolute, join, resolve } from "node:path";
import { SandboxError, type ContainerId, type SandboxId } from "@atoll/protocol";

/** Behind the number of a checkpoint that is on its way here. */
export const arrivingMark = ".coming";

/** The only place that knows where things lie in a data directory. */
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

  /** Tells the cgroups of one data directory from those of another on the same machine. */
  get namespace(): string {
    return createHash("sha256").update(this.root).digest("hex").slice(0, 12);
  }

  get lockFile(): string {
    return join(this.root, "engine.lock");
  }

  get guestDir(): string {
    return join(this.root, "guest");
  }

  /** The layer with one version of the guest in it. */
  guestLayer(name: string): string {
    return join(this.guestDir, name);
  }

  get sandboxesDir(): string {
    return join(this.root, "sandboxes");
  }

  /** Layers that never change any more; sandboxes that were forked share them. */
  get frozenDir(): string {
    return join(this.root, "layers");
  }

  /** What is being made of a sandbox's files, or of files for one. Nobody's after a crash. */
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

  /** What the sandbox wrote: one pair of overlay directories per tree of its template. */
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

  /** One that comes from elsewhere, until all of it is here. */
  arrivingCheckpoint(n: number): CheckpointLayout {
    return new CheckpointLayout(`${this.checkpoint(n).dir}${arrivingMark}`);
  }

  /** Names the layers that it began with, if it began with more than its template. */
  get firstLayersFile(): string {
    return join(this.dir, "first-layers.json");
  }

  /** There while its container is frozen for a moment. */
  get frozenMark(): string {
    return join(this.dir, "frozen");
  }

  /** There while it is paused only for as long as copies are being made of it. */
  get wakeMark(): string {
    return join(this.dir, "wake");
  }

  /** For whoever runs the engine: what it keeps here about a sandbox goes with the sandbox. */
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

/** The files of one container: everything here goes with it. */
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

  /** Bytes in it make the launcher look at the deadline again. */
  get wakeFifo(): string {
    return join(this.dir, "wake");
  }

  /**
   * Open for writing in a server that may have given the container timer slack. The launcher removes the slack when the
   * server is gone.
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

/** The files of one checkpoint; its layers are shared and lie elsewhere. */
export class CheckpointLayout {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  get memoryDir(): string {
    return join(this.dir, "memory");
  }

  /** What the image needs, for whoever has to finish the checkpoint. */
  get needsFile(): string {
    return join(this.dir, "needs.json");
  }

  /** An archive of the sandbox's `ownerDir` at that moment. */
  get ownerFile(): string {
    return join(this.dir, "owner.pack");
  }

  /** How the program that writes the memory image ended, written when it has. */
  get outcomeFile(): string {
    return join(this.dir, "outcome");
  }

  get manifestFile(): string {
    return join(this.dir, "manifest.json");
  }
}
