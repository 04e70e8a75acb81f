import { hasErrno, noSpace } from "@atoll/host";
import {
  nextState,
  type EndedProcess,
  type EndReason,
  type PhaseTimes,
  type SandboxEvent,
  type SandboxEventMessage,
  type SandboxRecord,
} from "@atoll/protocol";
import type { SandboxStore } from "../store/sandbox-store.ts";

/** The errors of a disk that takes no more writes. */
const brokenDisk = ["EIO", "EROFS"] as const;

/** The fields that a record has in every state. */
export type CommonRecord = Pick<
  SandboxRecord,
  "version" | "id" | "driver" | "template" | "limits" | "createdAtMs" | "expiresAtMs" | "labels"
>;

/** The one place where a sandbox changes its state: the change is checked against the table, stored, then emitted. */
export class RecordKeeper {
  #record: SandboxRecord;
  #store: SandboxStore;
  #emit: (event: SandboxEventMessage) => void;
  #turn: Promise<void> = Promise.resolve();

  constructor(record: SandboxRecord, store: SandboxStore, emit: (event: SandboxEventMessage) => void) {
    this.#record = record;
    this.#store = store;
    this.#emit = emit;
  }

  /**
   * Stores the record of a new sandbox before anything is done for it. An imported one begins as `paused`, when all of
   * it is here.
   */
  begin(): Promise<void> {
    return this.#inTurn(async () => {
      const { id, state } = this.#record;
      if (state !== "creating" && state !== "paused") throw new Error(`A sandbox does not begin as ${state}`);
      await this.#store.save(this.#record);
      this.#emit({ type: "state", sandboxId: id, atMs: Date.now(), from: null, to: state });
    });
  }

  get record(): SandboxRecord {
    return this.#record;
  }

  get common(): CommonRecord {
    const { version, id, driver, template, limits, createdAtMs, expiresAtMs, labels } = this.#record;
    return {
      version,
      id,
      driver,
      template,
      limits,
      createdAtMs,
      labels,
      ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
    };
  }

  /** Applies changes one after the other, in the order of the calls. */
  apply(
    event: SandboxEvent,
    build: (common: CommonRecord) => SandboxRecord,
    details: { phases?: PhaseTimes; ended?: EndedProcess[] } = {},
  ): Promise<void> {
    return this.#inTurn(async () => {
      const from = this.#record.state;
      const next = build(this.common);
      if (next.state !== nextState(from, event)) throw new Error(`${from} + ${event} does not lead to ${next.state}`);
      // The record changes before it is stored, so that every caller that learns of an end finds it here. If it is not
      // stored, the result is the same: the next server finds the container gone.
      if (event === "fault") this.#record = next;
      await this.#store.save(next).catch((error: unknown) => {
        if (!mayStayUnstored(event, this.#record, next) || !hasErrno(error, ...noSpace, ...brokenDisk)) throw error;
      });
      this.#record = next;
      const reason: EndReason | undefined = "reason" in next ? next.reason : undefined;
      const message = {
        type: "state",
        sandboxId: next.id,
        atMs: Date.now(),
        from,
        to: next.state,
        ...details,
      } as const;
      this.#emit(reason === undefined ? message : { ...message, reason });
    });
  }

  /** Removes the record of a killed sandbox, of which nothing else is left. */
  forget(reason: EndReason): Promise<void> {
    return this.#inTurn(async () => {
      const from = this.#record.state;
      if (nextState(from, "removed") !== "killed") throw new Error(`${from} is not the state before the end`);
      await this.#store.remove(this.#record.id);
      this.#record = { ...this.common, state: "killed", reason, endedAtMs: Date.now() };
      this.#emit({ type: "state", sandboxId: this.#record.id, atMs: Date.now(), from, to: "killed", reason });
    });
  }

  /**
   * Removes the record of a released sandbox, of which nothing else is left. No event is emitted: the release emitted
   * one.
   */
  drop(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#record.state !== "released") throw new Error(`A ${this.#record.state} sandbox was not released`);
      await this.#store.remove(this.#record.id);
    });
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}

/**
 * Says whether a change may succeed without being stored, because the next server concludes the same from what it
 * finds.
 */
function mayStayUnstored(event: SandboxEvent, from: SandboxRecord, to: SandboxRecord): boolean {
  // An end frees disk space, and a sandbox must not run on because a disk broke. If it is not stored, the container is
  // gone all the same.
  if (event === "kill" || event === "release" || event === "fault") return true;
  // The sandbox is as it was before the intent, which a crash would undo as well.
  const staysPut = "container" in from && "container" in to && from.container.id === to.container.id;
  return event === "refused" && (to.state === "paused" || staysPut);
}
