import type { CgroupTree } from "@atoll/host";
import { SandboxError, type DriverName, type SandboxId } from "@atoll/protocol";
import type { LayerLibrary } from "./checkpoints/layer-library.ts";
import { Pins } from "./checkpoints/pins.ts";
import type { TreePacker } from "./checkpoints/tree-packer.ts";
import type { ContainerRuns } from "./drivers/container-runs.ts";
import type { Driver } from "./drivers/driver.ts";
import type { EgressHandler } from "./guest/egress-relay.ts";
import type { IdleWatch } from "./idle/idle-watch.ts";
import type { EventLog } from "./lifecycle/event-log.ts";
import type { RecordKeeper } from "./lifecycle/record-keeper.ts";
import { SandboxLife } from "./lifecycle/sandbox-life.ts";
import type { CheckpointPolicy } from "./operations/retire-checkpoints.ts";
import type { DataLayout } from "./store/layout.ts";
import type { SandboxStore } from "./store/sandbox-store.ts";
import type { TemplateLibrary } from "./templates/template-library.ts";
import type { Template } from "./templates/template.ts";

export interface EngineParts {
  layout: DataLayout;
  store: SandboxStore;
  templates: TemplateLibrary;
  cgroups: CgroupTree;
  runs: ContainerRuns;
  events: EventLog;
  /** A driver, or the reason why this machine cannot have it. */
  drivers: Record<DriverName, Driver | SandboxError>;
  startTimeoutMs: number;
  guestTimeoutMs: number;
  idleWatch: IdleWatch;
  packer: TreePacker;
  layers: LayerLibrary;
  /** The guest's binary, which also works on layers. */
  guestPath: string;
  readCpuFeatures: () => Promise<string[]>;
  /** Without a policy, all checkpoints stay. */
  policy?: CheckpointPolicy | undefined;
  atStep: StepListener;
}

/** Called after each step of a pause, resume, fork, rollback, import or release; the next step waits for it. */
export type StepListener = (step: string, sandboxId: SandboxId) => Promise<void> | void;

/** The parts of one engine that the operations share, and its living sandboxes. */
export class EngineContext {
  readonly lives = new Map<SandboxId, SandboxLife>();
  /** Sandboxes that are being imported from another machine. */
  readonly importing = new Set<SandboxId>();
  readonly layout: DataLayout;
  readonly store: SandboxStore;
  readonly templates: TemplateLibrary;
  readonly cgroups: CgroupTree;
  readonly runs: ContainerRuns;
  readonly events: EventLog;
  readonly packer: TreePacker;
  readonly layers: LayerLibrary;
  readonly guestPath: string;
  readonly readCpuFeatures: () => Promise<string[]>;
  readonly policy: CheckpointPolicy | undefined;
  /** The directories of checkpoints that are being forked. */
  readonly pinnedCheckpoints = new Pins();
  /** A closing engine begins no work of its own; the next engine does that. */
  isClosing = false;
  #parts: EngineParts;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    this.layout = parts.layout;
    this.store = parts.store;
    this.templates = parts.templates;
    this.cgroups = parts.cgroups;
    this.runs = parts.runs;
    this.events = parts.events;
    this.packer = parts.packer;
    this.layers = parts.layers;
    this.guestPath = parts.guestPath;
    this.readCpuFeatures = parts.readCpuFeatures;
    this.policy = parts.policy;
  }

  /** Never returns a weaker driver than the requested one. */
  driver(name: DriverName): Driver {
    const driver = this.#parts.drivers[name];
    if (driver instanceof SandboxError) throw driver;
    return driver;
  }

  async atStep(step: string, sandboxId: SandboxId): Promise<void> {
    await this.#parts.atStep(step, sandboxId);
  }

  addLife(
    keeper: RecordKeeper,
    parts: { driver: Driver; template: Template; onEgress?: EgressHandler | undefined },
  ): SandboxLife {
    const { id } = keeper.record;
    const life = new SandboxLife({
      keeper,
      layout: this.layout.sandbox(id),
      driver: parts.driver,
      template: parts.template,
      events: this.events,
      startTimeoutMs: this.#parts.startTimeoutMs,
      guestTimeoutMs: this.#parts.guestTimeoutMs,
      idle: this.#parts.idleWatch.add(),
      onEgress: parts.onEgress,
      onRelease: (step) => this.atStep(`release: ${step}`, id),
      onGone: async () => {
        this.lives.delete(id);
        await this.layers.collect();
      },
    });
    this.lives.set(id, life);
    return life;
  }
}
