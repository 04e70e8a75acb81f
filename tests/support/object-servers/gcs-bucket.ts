import { createHash, randomUUID } from "node:crypto";

/** The points in which servers differ. The default is what the documentation of the JSON API promises. */
export interface GcsBehaviour {
  conditions: "kept" | "ignored";
}

export class GcsRefusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The metadata that a client sends with the bytes. */
export interface GcsFields {
  md5Hash?: string;
  metadata?: Record<string, string>;
}

interface StoredObject {
  data: Buffer;
  generation: number;
  fields: GcsFields;
  updatedAtMs: number;
}

interface Session {
  name: string;
  fields: GcsFields;
  query: URLSearchParams;
  received: Buffer[];
}

const mostSources = 32;

export class GcsBucket {
  readonly objects = new Map<string, StoredObject>();
  readonly sessions = new Map<string, Session>();
  readonly #behaviour: GcsBehaviour;
  #generation = Date.now() * 1_000;

  constructor(behaviour: Partial<GcsBehaviour>) {
    this.#behaviour = { conditions: "kept", ...behaviour };
  }

  /** Returns the names in the order of their bytes. */
  names(): string[] {
    return [...this.objects.keys()].toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  }

  insert(name: string, data: Buffer, fields: GcsFields, query: URLSearchParams): Record<string, unknown> {
    this.#checkConditions(name, query);
    const md5 = createHash("md5").update(data).digest("base64");
    if (fields.md5Hash !== undefined && fields.md5Hash !== md5) {
      throw new GcsRefusal(400, `Provided MD5 hash "${fields.md5Hash}" doesn't match calculated MD5 hash "${md5}".`);
    }
    this.#generation++;
    this.objects.set(name, { data, generation: this.#generation, fields, updatedAtMs: Date.now() });
    return this.describe(name, new URLSearchParams());
  }

  describe(name: string, query: URLSearchParams): Record<string, unknown> {
    const object = this.read(name, query);
    return {
      kind: "storage#object",
      name,
      size: String(object.data.length),
      generation: String(object.generation),
      metageneration: "1",
      updated: new Date(object.updatedAtMs).toISOString(),
      metadata: object.fields.metadata,
    };
  }

  read(name: string, query: URLSearchParams): StoredObject {
    const object = this.objects.get(name);
    const wanted = query.get("generation");
    if (object === undefined || (wanted !== null && wanted !== String(object.generation))) {
      throw new GcsRefusal(404, `No such object: ${name}`);
    }
    return object;
  }

  remove(name: string, query: URLSearchParams): void {
    this.read(name, new URLSearchParams());
    this.#checkConditions(name, query);
    this.objects.delete(name);
  }

  compose(
    name: string,
    sources: readonly string[],
    fields: GcsFields,
    query: URLSearchParams,
  ): Record<string, unknown> {
    if (sources.length > mostSources) throw new GcsRefusal(400, "The number of source components is too large.");
    const data = sources.map((source) => this.read(source, new URLSearchParams()).data);
    return this.insert(name, Buffer.concat(data), fields, query);
  }

  begin(name: string, fields: GcsFields, query: URLSearchParams): string {
    this.#checkConditions(name, query);
    const id = randomUUID();
    this.sessions.set(id, { name, fields, query, received: [] });
    return id;
  }

  /**
   * Takes the next bytes of an upload session, or only reports how many it has. Returns that number, or the object when
   * all bytes have arrived.
   */
  proceed(id: string, contentRange: string, data: Buffer): { receivedBytes: number } | Record<string, unknown> {
    const session = this.sessions.get(id);
    if (session === undefined) throw new GcsRefusal(404, "No such upload session");
    const [, first = "", total = ""] = /^bytes (?:(\d+)-[\d*]+|\*)\/(\d+|\*)$/.exec(contentRange) ?? [];
    const have = () => session.received.reduce((sum, chunk) => sum + chunk.length, 0);
    if (first !== "") {
      if (Number(first) !== have()) throw new GcsRefusal(503, "These are not the next bytes");
      session.received.push(data);
    }
    if (total === "*" || have() < Number(total)) return { receivedBytes: have() };
    this.sessions.delete(id);
    return this.insert(session.name, Buffer.concat(session.received), session.fields, session.query);
  }

  #checkConditions(name: string, query: URLSearchParams): void {
    const expected = query.get("ifGenerationMatch");
    if (expected === null || this.#behaviour.conditions === "ignored") return;
    const generation = this.objects.get(name)?.generation ?? 0;
    if (String(generation) !== expected) {
      throw new GcsRefusal(412, "At least one of the pre-conditions you specified did not hold.");
    }
  }
}
