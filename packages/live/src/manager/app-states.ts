import { SandboxError } from "@atoll/protocol";
import type { AppState } from "./app-options.ts";

/** The states that may follow each state. Everything that changes the state of an app goes through `nextState`. */
const transitions: Readonly<Record<AppState, readonly AppState[]>> = {
  initializing: ["compiling", "stopping", "error"],
  compiling: ["starting", "stopping", "error"],
  starting: ["running", "stopping", "error"],
  running: ["reloading", "compiling", "starting", "stopping", "error"],
  // A reload ends where it began, or with a process that has to be started again.
  reloading: ["running", "starting", "stopping", "error"],
  stopping: ["stopped", "error"],
  stopped: ["compiling", "starting", "stopping"],
  // An app in error keeps its reason until it is restarted, reloaded or destroyed.
  error: ["compiling", "starting", "stopping"],
};

export function nextState(from: AppState, to: AppState): AppState {
  if (transitions[from].includes(to)) return to;
  throw new SandboxError("invalid_state", `Cannot change an app from ${from} to ${to}`);
}
