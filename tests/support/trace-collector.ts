import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface CollectedSpan {
  name: string;
  kind: number;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  status: { code?: number; message?: string };
  attributes: Record<string, unknown>;
}

interface OtlpSpan extends Omit<CollectedSpan, "attributes"> {
  attributes: { key: string; value: Record<string, unknown> }[];
}

interface OtlpRequest {
  resourceSpans: { resource: Pick<OtlpSpan, "attributes">; scopeSpans: { spans: OtlpSpan[] }[] }[];
}

/** Receives OTLP over HTTP, as a collector does. */
export class TraceCollector {
  readonly spans: CollectedSpan[] = [];
  readonly paths = new Set<string>();
  resource: Record<string, unknown> = {};
  #server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    this.paths.add(request.url ?? "");
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      this.#take(JSON.parse(Buffer.concat(pieces).toString()) as OtlpRequest);
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });

  static async start(): Promise<TraceCollector> {
    const collector = new TraceCollector();
    collector.#server.listen(0, "127.0.0.1");
    await once(collector.#server, "listening");
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Returns the only span of this name. */
  one(name: string): CollectedSpan {
    const [span, ...others] = this.spans.filter((candidate) => candidate.name === name);
    if (span === undefined || others.length > 0) {
      const names = this.spans.map((candidate) => candidate.name).join(", ");
      throw new Error(`Expected one span ${name} among ${names}`);
    }
    return span;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  #take({ resourceSpans }: OtlpRequest): void {
    for (const { resource, scopeSpans } of resourceSpans) {
      this.resource = plain(resource.attributes);
      for (const { spans } of scopeSpans) {
        for (const span of spans) this.spans.push({ ...span, attributes: plain(span.attributes) });
      }
    }
  }
}

function plain(attributes: OtlpSpan["attributes"]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}
