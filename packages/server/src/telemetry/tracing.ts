import type { Log } from "./log.ts";

type Attributes = Record<string, string | number | boolean | undefined>;

interface SpanOptions {
  kind?: "server" | "internal";
  attributes?: Attributes;
  /** Of the request that began it: a client's `traceparent` is carried on with. */
  headers?: Readonly<Record<string, string | string[] | undefined>>;
}

/** Something that takes a while, as a trace tells it. */
export interface Span {
  /** What is begun within `work`, at once or later, is below this one. */
  within<T>(work: () => T): T;
  set(attributes: Attributes): void;
  rename(name: string): void;
  fail(because: string): void;
  /** Once. */
  end(): void;
  /** Absent where nothing is traced. */
  readonly traceId?: string;
}

export interface Tracing {
  /** Below the one that is under way here. */
  start(name: string, options?: SpanOptions): Span;
  /** Sends what is left. */
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

/** Traces go to the collector at this address, over HTTP; without one nothing is traced, and nothing loaded for it. */
export async function openTracing(endpoint: string | undefined, log: Log): Promise<Tracing> {
  if (endpoint === undefined) return noTracing;
  const { openOtlpTracing } = await import("./otlp-tracing.ts");
  return openOtlpTracing(endpoint, log);
}
