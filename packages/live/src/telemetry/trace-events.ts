import type { Attributes, Tracer } from "@opentelemetry/api";
import type { LiveEvent } from "../events/live-event.ts";

/** The value of `SpanStatusCode.ERROR`. The package is needed for its types alone. */
const errorStatus = 2;

/** What a span is made of: only events with a duration are steps. */
interface Step {
  name: string;
  durationMs: number;
  attributes: Attributes;
  failure?: string;
}

/**
 * Makes spans of OpenTelemetry from the events of a manager, each with the time that the step took. They contain no
 * logs, states or sources of apps, which may be secret. Returns a listener for `onEvent`.
 */
export function traceEvents(tracer: Tracer): (event: LiveEvent) => void {
  return (event) => {
    const step = stepOf(event);
    if (step === undefined) return;
    const endTime = Date.parse(event.at);
    const startTime = endTime - step.durationMs;
    const attributes = { "atoll.live.app": event.app, ...step.attributes };
    const span = tracer.startSpan(`live ${step.name}`, { startTime, attributes });
    if (step.failure !== undefined) span.setStatus({ code: errorStatus, message: step.failure });
    span.end(endTime);
  };
}

function stepOf(event: LiveEvent): Step | undefined {
  switch (event.type) {
    case "compile.end": {
      const { durationMs, compiled, cached, ok } = event;
      const attributes = { "atoll.live.compiled": compiled.length, "atoll.live.cached": cached };
      return { name: "compile", durationMs, attributes, ...(ok ? {} : { failure: "the code has errors" }) };
    }
    case "scan.end":
    case "types.end": {
      const { durationMs, diagnostics, ok } = event;
      const attributes = { "atoll.live.diagnostics": diagnostics.length };
      const name = event.type === "scan.end" ? "scan" : "types";
      return { name, durationMs, attributes, ...(ok ? {} : { failure: "the code has errors" }) };
    }
    case "reload.prepare":
    case "reload.suspend":
    case "reload.commit":
    case "reload.end": {
      const name = event.type === "reload.end" ? "reload" : event.type.replace(".", " ");
      return { name, durationMs: event.durationMs, attributes: { "atoll.live.generation": event.generation } };
    }
    case "reload.failed": {
      const attributes = { "atoll.live.phase": event.phase, "atoll.live.code": event.code };
      return { name: "reload", durationMs: 0, attributes, failure: event.code };
    }
    case "rollback": {
      const attributes = { "atoll.live.from": event.from, "atoll.live.to": event.to };
      return { name: "rollback", durationMs: event.durationMs, attributes };
    }
    case "app.state":
    case "app.destroy":
    case "compile.start":
    case "reload.start":
    case "reload.settle":
    case "service.crash":
    case "service.start":
    case "service.stop":
    case "process.end":
    case "recovery":
    case "log":
    case "watch.change":
    case "security.denied":
    case "limit.near":
    case "limit.hit":
    case "limit.enforced":
      return undefined;
  }
}
