import type { RuntimeEvent } from "../wire/connection.ts";
import type { LiveEventBody } from "./live-event.ts";

/** What the runtime reports, as an event of the app. */
export function liveEventOf(event: Exclude<RuntimeEvent, { t: "ended" }>): LiveEventBody {
  switch (event.t) {
    case "log": {
      const { level, text, service } = event;
      return { type: "log", level, text, ...(service === undefined ? {} : { service }) };
    }
    case "crash": {
      const { service, reason, stack, restarts } = event;
      return { type: "service.crash", service, reason, restarts, ...(stack === undefined ? {} : { stack }) };
    }
    case "started":
      return { type: "service.start", service: event.service };
    case "stopped":
      return { type: "service.stop", service: event.service, reason: event.reason };
  }
}
