import type { Log } from "./log.ts";

type Attributes = Record<string, string | number | boolean | undefined>;

interface SpanOptions {
  kind?: "server" | "internal";
  attributes?: Attributes;
  /** The headers of the request that began the span: a client's `traceparent` becomes its parent. */
  headers?: Readonly<Record<string, string | string[] | undefined>>;
}

/** An operation in a trace. */
export interface Span {
  /** Makes spans that begin within `work`, at once or later, children of this one. */
  within<T>(work: () => T): T;
  set(attributes: Attributes): void;
  rename(name: string): void;
  fail(because: string): void;
  /** Ends the span. It is called once. */
  end(): void;
  /** The id of the trace; absent if tracing is off. */
  readonly traceId?: string;
}

export interface Tracing {
  /** Starts a span as a child of the current one. */
  start(name: string, options?: SpanOptions): Span;
  /** Sends the remaining spans. */
  close(): Promise<void>;
}

const noSpan: Span = {
  within: (work) => work(),
  set: () => undefined,
  rename: () => undefined,
  fail: () => undefined,
  end: () => undefined,
};

export const noTracing: Tracing = { start: () => noSpan, close: async () => undefined };

/**
 * Sends traces to the collector at this address over HTTP. Without an address nothing is traced, and no package is
 * loaded for it.
 */
export async function openTracing(endpoint: string | undefined, log: Log): Promise<Tracing> {
  if (endpoint === undefined) return noTracing;
  const { openOtlpTracing } = await import("./otlp-tracing.ts");
  return openOtlpTracing(endpoint, log);
}
