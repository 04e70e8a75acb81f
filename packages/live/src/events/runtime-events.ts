import type { SourcePlaces } from "../compiler/source-places.ts";
import type { RuntimeEvent } from "../wire/connection.ts";
import type { LiveEventBody } from "./live-event.ts";

/** What the runtime reports, as an event of the app. */
export function liveEventOf(event: Exclude<RuntimeEvent, { t: "ended" }>, places: SourcePlaces): LiveEventBody {
  switch (event.t) {
    case "log": {
      const { level, text, service } = event;
      return { type: "log", level, text, ...(service === undefined ? {} : { service }) };
    }
    case "crash": {
      const { service, reason, stack, restarts } = event;
      const place = places.first(stack);
      const at = { ...(stack === undefined ? {} : { stack }), ...(place === undefined ? {} : { place }) };
      return { type: "service.crash", service, reason, restarts, ...at };
    }
    case "started":
      return { type: "service.start", service: event.service };
    case "denied":
      return { type: "security.denied", what: event.what, reason: event.why };
    case "stopped":
      return { type: "service.stop", service: event.service, reason: event.reason };
  }
}
