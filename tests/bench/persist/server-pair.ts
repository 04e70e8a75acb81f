import { Atoll, Sandbox } from "@atoll/sdk";
import type { ObjectServer } from "../../support/object-servers/object-server.ts";
import { openTestS3 } from "../../support/object-servers/test-s3.ts";
import { ServerProcess } from "../server/server-process.ts";

export type StoreKind = "file" | "s3";

/** The store that both servers of a pair share. */
interface SharedStore extends AsyncDisposable {
  setting: string;
  /** The server of a bucket whose requests can be made to fail. */
  bucket?: ObjectServer;
}

/** A server and a client of it. */
export class PairMember implements AsyncDisposable {
  readonly server: ServerProcess;
  #client: Atoll;

  private constructor(server: ServerProcess) {
    this.server = server;
    this.#client = new Atoll({ baseUrl: server.url, apiKey: server.key });
  }

  static async open(dir: string, flags: string[]): Promise<PairMember> {
    return new PairMember(await ServerProcess.start({ dir, flags }));
  }

  get client(): Atoll {
    return this.#client;
  }

  /** Returns the sandbox as this server shows it. The call does not move the sandbox. */
  handle(id: string): Promise<Sandbox> {
    return Sandbox.connect(id, { client: this.#client });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

/** Two servers with separate data directories that share one store. */
export class ServerPair implements AsyncDisposable {
  readonly members: readonly [PairMember, PairMember];
  #store: SharedStore;

  private constructor(members: readonly [PairMember, PairMember], store: SharedStore) {
    this.members = members;
    this.#store = store;
  }

  static async open(dir: string, kind: StoreKind, others: readonly string[] = []): Promise<ServerPair> {
    const store = kind === "file" ? fileStore(`${dir}/store`) : await s3Store();
    const flags = ["--metadata-store", store.setting, "--checkpoint-store", store.setting, ...others];
    const a = await PairMember.open(`${dir}/a`, flags);
    try {
      return new ServerPair([a, await PairMember.open(`${dir}/b`, flags)], store);
    } catch (error) {
      await a[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The shared bucket. Reading it fails for a pair that shares a directory. */
  get bucket(): ObjectServer {
    if (this.#store.bucket === undefined) throw new Error("These servers share no bucket");
    return this.#store.bucket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const member of this.members) await member[Symbol.asyncDispose]();
    await this.#store[Symbol.asyncDispose]();
  }
}

function fileStore(setting: string): SharedStore {
  return { setting, [Symbol.asyncDispose]: async () => undefined };
}

/** Starts a small S3 server in this process. */
async function s3Store(): Promise<SharedStore> {
  const { config, close, server } = await openTestS3();
  return { bucket: server, setting: JSON.stringify(config), [Symbol.asyncDispose]: close };
}
