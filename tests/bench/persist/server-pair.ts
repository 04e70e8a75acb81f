import { Atoll, Sandbox } from "@atoll/sdk";
import type { ObjectServer } from "../../support/object-servers/object-server.ts";
import { openTestS3 } from "../../support/object-servers/test-s3.ts";
import { ServerProcess } from "../server/server-process.ts";

export type StoreKind = "file" | "s3";

/** Where both servers of a pair keep what lasts. */
interface SharedStore extends AsyncDisposable {
  setting: string;
  /** Of a bucket: where its requests can be made to fail. */
  bucket?: ObjectServer;
}

/** A server and a client of it. */
export class Place implements AsyncDisposable {
  readonly server: ServerProcess;
  #client: Atoll;

  private constructor(server: ServerProcess) {
    this.server = server;
    this.#client = new Atoll({ baseUrl: server.url, apiKey: server.key });
  }

  static async open(dir: string, flags: string[]): Promise<Place> {
    return new Place(await ServerProcess.start({ dir, flags }));
  }

  get client(): Atoll {
    return this.#client;
  }

  /** The same sandbox as this server sees it; nothing moves. */
  handle(id: string): Promise<Sandbox> {
    return Sandbox.connect(id, { client: this.#client });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

/** Two servers with data directories of their own and one store for what lasts. */
export class ServerPair implements AsyncDisposable {
  readonly places: readonly [Place, Place];
  #store: SharedStore;

  private constructor(places: readonly [Place, Place], store: SharedStore) {
    this.places = places;
    this.#store = store;
  }

  static async open(dir: string, kind: StoreKind, others: readonly string[] = []): Promise<ServerPair> {
    const store = kind === "file" ? fileStore(`${dir}/store`) : await s3Store();
    const flags = ["--metadata-store", store.setting, "--checkpoint-store", store.setting, ...others];
    const a = await Place.open(`${dir}/a`, flags);
    try {
      return new ServerPair([a, await Place.open(`${dir}/b`, flags)], store);
    } catch (error) {
      await a[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Of a pair that has one. */
  get bucket(): ObjectServer {
    if (this.#store.bucket === undefined) throw new Error("These servers share no bucket");
    return this.#store.bucket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const place of this.places) await place[Symbol.asyncDispose]();
    await this.#store[Symbol.asyncDispose]();
  }
}

function fileStore(setting: string): SharedStore {
  return { setting, [Symbol.asyncDispose]: async () => undefined };
}

/** A small server of our own that speaks S3, in this process. */
async function s3Store(): Promise<SharedStore> {
  const { config, close, server } = await openTestS3();
  return { bucket: server, setting: JSON.stringify(config), [Symbol.asyncDispose]: close };
}
