import { z } from "zod";
import {
  FencedObject,
  Leases,
  type Clock,
  type Lease,
  type LeaseTiming,
  type ObjectStore,
} from "../../../src/index.ts";
import { pause } from "../../../src/lease/clock.ts";
import { MemoryObjectStore } from "../memory-object-store.ts";
import { History } from "./history.ts";
import { skewedClock, Timeline, type Skew } from "./timeline.ts";
import { quickFate, unreliableStore, type Fate } from "./unreliable-store.ts";

const leaseKey = "sandboxes/one/lease.json";
const fencedKey = "sandboxes/one/metadata.json";

/** Timings with hardly any reserve, so that the rules of leases have to hold, and not the reserve. */
const tightTiming: LeaseTiming = {
  ttlMs: 1000,
  stopMs: 1,
  renewMs: 200,
  watchMs: 100,
  callMs: 250,
  retryMs: 40,
  pollMs: 50,
  waiterTtlMs: 600,
};

export interface ServerPlan extends Skew {
  /** How long the server does without the sandbox after a handover. */
  restMs: number;
  /** How long the server takes to save the sandbox for another one. */
  saveMs: number;
  isPatient: boolean;
  /** Whether the server takes over at once what the process before it held, knowing that it is dead. */
  isHeir: boolean;
}

export interface Disaster {
  atMs: number;
  /** The number of a server, or the owner of the lease at that moment. */
  server: number | "owner";
  /**
   * A stopped server's clock goes on, a dead one starts again as another process, and one that is cut off reaches
   * nothing.
   */
  kind: "stop" | "die" | "cut";
  forMs: number;
}

/** One life of a server: between its start and its death. */
export class SimulatedServer {
  readonly name: string;
  readonly #world: Simulation;
  readonly #plan: ServerPlan;
  #isDead = false;
  #isStopped = false;
  #pending: (() => void)[] = [];
  lease: Lease | undefined;
  isCut = false;
  acquisitions = 0;
  writes = 0;

  constructor(world: Simulation, name: string, plan: ServerPlan) {
    this.#world = world;
    this.name = name;
    this.#plan = plan;
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  get believes(): boolean {
    return !this.#isDead && this.lease?.isCurrent === true;
  }

  stop(): void {
    this.#isStopped = true;
  }

  wake(): void {
    this.#isStopped = false;
    const pending = this.#pending;
    this.#pending = [];
    for (const action of pending) action();
  }

  die(): void {
    this.#isDead = true;
    this.#pending = [];
  }

  start(): void {
    void this.#live();
  }

  /** Acquires the sandbox, works on it, hands it over to a waiter, and acquires it again. */
  async #live(): Promise<void> {
    const deliver = (action: () => void): void => this.#deliver(action);
    const clock = skewedClock(this.#world.timeline, this.#plan, deliver);
    const nextFate = (): Fate => (this.isCut ? { ...quickFate, kind: "request_lost" } : this.#world.nextFate());
    const store = unreliableStore(this.#world.store, { timeline: this.#world.timeline, nextFate, deliver });
    const leases = new Leases({
      store,
      self: { id: this.name, url: "" },
      timing: this.#world.timing,
      clock,
      isPredecessor: ({ id }) => this.#plan.isHeir && id === this.name,
    });
    for (;;) {
      try {
        const lease = this.#plan.isPatient
          ? await leases.waitForHandover(leaseKey, { timeoutMs: 8000 })
          : await leases.acquire(leaseKey);
        this.lease = lease;
        this.acquisitions += 1;
        await this.#work(store, clock, lease, () => pause(clock, this.#plan.saveMs, lease.signal));
        await lease.release();
      } catch {
        // The lease is in use, unreachable or lost: all of these are expected here.
      }
      await pause(clock, this.#plan.restMs);
    }
  }

  async #work(store: ObjectStore, clock: Clock, lease: Lease, pauseBetween: () => Promise<void>): Promise<void> {
    const object = await FencedObject.claim({ store, clock, callMs: 400, key: fencedKey, schema: z.int() }, lease);
    while (lease.waiter === undefined) {
      await pauseBetween();
      await object.write((object.content ?? 0) + 1);
      this.writes += 1;
    }
    await pauseBetween();
    await object.write((object.content ?? 0) + 1);
    this.writes += 1;
  }

  #deliver(action: () => void): void {
    if (this.#isDead) return;
    if (this.#isStopped) this.#pending.push(action);
    else action();
  }
}

export interface SimulationPlan {
  /** False when clocks are arbitrarily wrong: then only fenced objects are safe. */
  hasSoundClocks: boolean;
  /** How often a waiter looks: the more often, the fewer errors are hidden by the time between two looks. */
  pollMs: number;
  servers: ServerPlan[];
  fates: Fate[];
  disasters: Disaster[];
}

/** Servers that share one store and nothing else, under a plan of everything that goes wrong. */
export class Simulation {
  readonly timeline = new Timeline();
  readonly store: ObjectStore;
  readonly history = new History(this.timeline);
  readonly lives: SimulatedServer[];
  readonly timing: LeaseTiming;
  readonly #plan: SimulationPlan;
  #calls = 0;
  #isQuiet = false;

  constructor(plan: SimulationPlan) {
    this.#plan = plan;
    this.timing = { ...tightTiming, pollMs: plan.pollMs };
    this.store = this.history.recording(new MemoryObjectStore());
    this.lives = plan.servers.map((server, index) => new SimulatedServer(this, `s${index}`, server));
    for (const disaster of plan.disasters) this.timeline.at(disaster.atMs, () => this.#strike(disaster));
    this.timeline.onMoment = () => this.#assertSound();
    for (const life of this.lives) life.start();
  }

  nextFate(): Fate {
    const fate = this.#plan.fates[this.#calls % this.#plan.fates.length];
    this.#calls += 1;
    return this.#isQuiet || fate === undefined ? quickFate : fate;
  }

  /** From now on nothing goes wrong. */
  calm(): void {
    this.#isQuiet = true;
  }

  /** The acquisitions of all servers in their present lives. */
  get acquisitions(): number {
    return this.lives.reduce((total, life) => total + life.acquisitions, 0);
  }

  get believers(): SimulatedServer[] {
    return this.lives.filter((life) => life.believes);
  }

  #strike({ server, kind, forMs }: Disaster): void {
    const owner = this.lives.findIndex((life) => life.believes);
    const index = server === "owner" ? owner : server % this.lives.length;
    const life = this.lives[index];
    const plan = this.#plan.servers[index];
    if (life === undefined || plan === undefined || life.isDead) return;
    const later = (action: () => void): void => void this.timeline.at(this.timeline.nowMs + forMs, action);
    if (kind === "stop") {
      life.stop();
      later(() => life.wake());
    } else if (kind === "cut") {
      life.isCut = true;
      later(() => (life.isCut = false));
    } else {
      life.die();
      later(() => {
        const next = new SimulatedServer(this, life.name, plan);
        this.lives[index] = next;
        next.start();
      });
    }
  }

  #assertSound(): void {
    const { believers } = this;
    if (this.#plan.hasSoundClocks && believers.length > 1) {
      throw new Error(`two owners at ${this.timeline.nowMs} ms: ${believers.map((life) => life.name).join(", ")}`);
    }
    this.history.assertSound(this.#plan.hasSoundClocks);
  }
}
