import { SandboxError } from "./errors.ts";

/** A state that ends in `-ing` means that a side effect may be under way; the intent was stored before it began. */
export const sandboxStates = [
  "creating",
  "running",
  "pausing",
  "paused",
  "resuming",
  "killing",
  "killed",
  "failed",
  "released",
] as const;
export type SandboxState = (typeof sandboxStates)[number];

/**
 * Whether the guest of a `running` sandbox answers. Every request goes through the guest. This is not a state: the
 * sandbox stays `running`, and requests succeed again when its guest answers again.
 */
export const guestConditions = ["responsive", "unresponsive"] as const;
export type GuestCondition = (typeof guestConditions)[number];

/** Commands are imperative (`pause`), facts are past tense (`checkpointed`). */
export const sandboxEvents = [
  "started",
  "pause",
  "checkpointed",
  "refused",
  "resume",
  "recover",
  "kill",
  "release",
  "removed",
  "fault",
] as const;
export type SandboxEvent = (typeof sandboxEvents)[number];

/** The whole state machine. A transition that is not in the table cannot happen. */
export const transitions = {
  creating: { started: "running", kill: "killing", release: "released", fault: "failed" },
  running: { pause: "pausing", kill: "killing", release: "released", fault: "failed" },
  pausing: { checkpointed: "paused", refused: "running", kill: "killing", release: "released", fault: "failed" },
  paused: { resume: "resuming", kill: "killing", release: "released", fault: "failed" },
  resuming: { started: "running", refused: "paused", kill: "killing", release: "released", fault: "failed" },
  killing: { removed: "killed", kill: "killing", fault: "failed" },
  killed: {},
  failed: { recover: "paused", resume: "resuming", kill: "killing", release: "released" },
  released: {},
} as const satisfies Record<SandboxState, Partial<Record<SandboxEvent, SandboxState>>>;

/**
 * Returns the state after `event`. An event that the table does not have here is a bug of ours, so it throws a plain
 * error.
 */
export function nextState(state: SandboxState, event: SandboxEvent): SandboxState {
  const row: Partial<Record<SandboxEvent, SandboxState>> = transitions[state];
  const next = row[event];
  if (next === undefined) throw new Error(`No transition: ${state} + ${event}`);
  return next;
}

/**
 * What a client may ask of a sandbox, and in which states. `kill` is accepted in every state: killing what has ended
 * succeeds.
 */
export const actions = {
  "start a process in": ["running"],
  "use files of": ["running"],
  "open a port of": ["running"],
  "read usage of": ["running"],
  "change limits of": ["running"],
  pause: ["running"],
  resume: ["paused"],
  restart: ["paused", "failed"],
  fork: ["running", "paused"],
  "roll back": ["running", "paused", "failed"],
  "take a snapshot of": ["running", "paused", "failed"],
  kill: sandboxStates,
} as const satisfies Record<string, readonly SandboxState[]>;
export type SandboxAction = keyof typeof actions;

/** Throws unless the state of `sandbox` allows `action`. Every operation calls this first. */
export function assertAccepts(sandbox: { id: string; state: SandboxState }, action: SandboxAction): void {
  const allowed: readonly SandboxState[] = actions[action];
  if (allowed.includes(sandbox.state)) return;
  throw new SandboxError("invalid_state", `Cannot ${action} sandbox ${sandbox.id}: it is ${sandbox.state}`, {
    suggestion: `This works on a sandbox that is ${allowed.join(" or ")}. ${adviceFor(sandbox.state)}`,
    details: { sandboxId: sandbox.id, state: sandbox.state, action, allowed: [...allowed] },
  });
}

function adviceFor(state: SandboxState): string {
  switch (state) {
    case "creating":
    case "resuming":
      return "Wait until it is running.";
    case "pausing":
      return "Wait until it is paused, then resume it.";
    case "running":
      return "It is running already.";
    case "paused":
      return "Resume it first.";
    case "killing":
    case "killed":
      return "It has ended: create a new one.";
    case "released":
      return "It lives on another machine: ask there.";
    case "failed":
      return (
        "Its record has the reason and what survives: restart it on its files with a resume without memory, " +
        "take a snapshot of it, roll it back, or kill it."
      );
  }
}
