import type { InstanceReport, StageName } from "../models/report.ts";
import type { RunEvent } from "./events.ts";

/** What a journal says of one item. */
interface ItemState {
  key: string;
  /** The stage that runs, or that ran when the journal ended. */
  stage?: StageName;
  report?: InstanceReport;
}

export interface RunState {
  runId: string;
  startedAt: string;
  /** The state of each item, by its label. */
  items: Map<string, ItemState>;
  /** Sandboxes that were started and whose removal is not recorded. */
  sandboxes: Set<string>;
  /** Whether the last process that worked on the run came to its end. */
  ended: boolean;
  interrupted: boolean;
}

/** The state of a run is a fold over its events. A later `instance.start` replaces what an earlier one has found. */
export function foldEvents(events: readonly RunEvent[]): RunState {
  const state: RunState = {
    runId: "",
    startedAt: events[0]?.at ?? "",
    items: new Map(),
    sandboxes: new Set(),
    ended: false,
    interrupted: false,
  };
  for (const event of events) fold(state, event);
  return state;
}

function fold(state: RunState, event: RunEvent): void {
  switch (event.type) {
    case "run.start":
      Object.assign(state, { runId: event.runId, ended: false, interrupted: false });
      break;
    case "instance.start":
      state.items.set(event.instance, { key: event.key });
      break;
    case "stage.start": {
      const item = state.items.get(event.instance);
      if (item !== undefined) item.stage = event.stage;
      break;
    }
    case "sandbox.start":
      state.sandboxes.add(event.id);
      break;
    case "sandbox.remove":
      state.sandboxes.delete(event.id);
      break;
    case "instance.end":
      state.items.set(event.instance, { key: event.key, report: event.report });
      break;
    case "run.drain":
      state.interrupted = true;
      break;
    case "run.end":
      Object.assign(state, { ended: true, interrupted: event.interrupted });
      break;
    case "stage.end":
    case "command.start":
    case "command.output":
    case "command.end":
    case "fix.apply":
    case "attempt.end":
      break;
  }
}
