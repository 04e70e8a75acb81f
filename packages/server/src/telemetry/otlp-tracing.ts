import { AsyncLocalStorage } from "node:async_hooks";
import type { Attributes, Context } from "@opentelemetry/api";
import type { ExportResult } from "@opentelemetry/core";
import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import type { Log } from "./log.ts";
import type { Span, Tracing } from "./tracing.ts";

/** The shortest time between two warnings about a collector that does not answer. */
const warnIntervalMs = 60_000;

/** The time that the collector has at the end. */
const closeMs = 5_000;

/**
 * Sends traces as OpenTelemetry. Nothing is registered globally, so that two servers in one process do not share state.
 * Other settings, such as `OTEL_SERVICE_NAME`, `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_TRACES_SAMPLER`, are read by the
 * packages themselves.
 */
export async function openOtlpTracing(endpoint: string, log: Log): Promise<Tracing> {
  // The imports are in here, because a bundle would hoist static ones to its top, where they are always loaded.
  const [{ ROOT_CONTEXT, SpanKind, SpanStatusCode, trace }, core, resources, sdk, exporters] = await Promise.all([
    import("@opentelemetry/api"),
    import("@opentelemetry/core"),
    import("@opentelemetry/resources"),
    import("@opentelemetry/sdk-trace-base"),
    import("@opentelemetry/exporter-trace-otlp-http"),
  ]);
  const exporter = new exporters.OTLPTraceExporter({ url: `${endpoint.replace(/\/+$/, "")}/v1/traces` });
  const named = resources.resourceFromAttributes({ "service.name": "atoll" });
  const fromEnvironment = resources.detectResources({ detectors: [resources.envDetector] });
  const provider = new sdk.BasicTracerProvider({
    resource: resources.defaultResource().merge(named).merge(fromEnvironment),
    spanProcessors: [
      new sdk.BatchSpanProcessor(
        withWarnings(exporter, (result) => result.code !== core.ExportResultCode.SUCCESS, endpoint, log),
      ),
    ],
  });
  const tracer = provider.getTracer("@atoll/server");
  const propagator = new core.W3CTraceContextPropagator();
  const current = new AsyncLocalStorage<Context>();
  const headersOf = { get: getHeader, keys: (headers: object) => Object.keys(headers) };
  return {
    start: (name, { kind = "internal", attributes = {}, headers } = {}) => {
      const here = current.getStore() ?? ROOT_CONTEXT;
      const parent = headers === undefined ? here : propagator.extract(here, headers, headersOf);
      const span = tracer.startSpan(
        name,
        {
          kind: kind === "server" ? SpanKind.SERVER : SpanKind.INTERNAL,
          attributes: present(attributes),
        },
        parent,
      );
      const started: Span = {
        traceId: span.spanContext().traceId,
        within: (work) => current.run(trace.setSpan(parent, span), work),
        set: (more) => void span.setAttributes(present(more)),
        rename: (next) => void span.updateName(next),
        fail: (because) => void span.setStatus({ code: SpanStatusCode.ERROR, message: because }),
        end: () => span.end(),
      };
      return started;
    },
    close: async () => {
      // A collector that does not answer must not delay the stop.
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, closeMs);
      });
      const shutdown = provider.shutdown().catch((error: unknown) => log.warn({ err: error }, "traces not sent"));
      await Promise.race([shutdown, late]);
      clearTimeout(timer);
    },
  };
}

function getHeader(headers: Readonly<Record<string, string | string[] | undefined>>, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

function present(attributes: Record<string, string | number | boolean | undefined>): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}

/** Logs failures of the exporter, at most one per interval. */
function withWarnings(
  exporter: SpanExporter,
  isFailure: (result: ExportResult) => boolean,
  endpoint: string,
  log: Log,
): SpanExporter {
  let warnedAtMs = Number.NEGATIVE_INFINITY;
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        if (isFailure(result) && performance.now() - warnedAtMs > warnIntervalMs) {
          warnedAtMs = performance.now();
          log.warn({ err: result.error, endpoint, spans: spans.length }, "traces not sent");
        }
        done(result);
      }),
    shutdown: () => exporter.shutdown(),
  };
}
