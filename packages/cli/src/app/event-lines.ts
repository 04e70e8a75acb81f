import type { LiveEvent } from "@atoll/live";
import { DevState } from "./dev-state.ts";

/** The lines of an event; none for steps in between. */
export function linesOf(event: LiveEvent): string[][] {
  // oxlint-disable-next-line typescript/switch-exhaustiveness-check -- the others have no line
  switch (event.type) {
    case "app.state":
      return [["state", event.state, ...(event.reason === undefined ? [] : [event.reason])]];
    case "reload.end": {
      const { generation, durationMs, modules, services } = event;
      return [
        ["reload", `generation ${generation}`, `${durationMs.toFixed(1)} ms`, modules.join(" "), services.join(" ")],
      ];
    }
    case "reload.failed": {
      const state = new DevState();
      state.take(event);
      return [["failed", event.phase, event.reason], ...(state.failure?.frames ?? []).map((frame) => [`  ${frame}`])];
    }
    case "rollback":
      return [["rollback", `generation ${event.from} to ${event.to}`, event.reason]];
    case "service.crash":
      return [["crash", event.service, event.reason, `${event.restarts} restarts`]];
    case "process.end":
      return [["process", "ended", event.reason, event.willRestart ? "it starts again" : "it stays ended"]];
    case "log":
      return event.text.split("\n").map((text) => ["log", event.service ?? "-", text]);
    default:
      return [];
  }
}
