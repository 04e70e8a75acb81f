import { afterAll, beforeAll } from "vitest";
import { ApiClient } from "./api-client.ts";
import type { SharedStore } from "./shared-store.ts";
import { startTestServer, type TestServer } from "./test-server.ts";

/** Two servers on one store, which all tests of a file share. */
export class ServerPair<Store extends SharedStore> {
  #store: Store | undefined;
  #servers: TestServer[] = [];

  constructor(openStore: () => Promise<Store>) {
    beforeAll(async () => {
      const store = await openStore();
      this.#store = store;
      this.#servers = await Promise.all([1, 2].map(() => startTestServer({ flags: store.flags() })));
    });
    afterAll(async () => {
      await Promise.all(this.#servers.map((server) => server.dispose()));
      await this.#store?.[Symbol.asyncDispose]();
    });
  }

  get store(): Store {
    if (this.#store === undefined) throw new Error("The store is not open before the first test");
    return this.#store;
  }

  get a(): TestServer {
    return this.#server(0);
  }

  get b(): TestServer {
    return this.#server(1);
  }

  get clients(): [ApiClient, ApiClient] {
    return [new ApiClient(this.a.url, this.a.key), new ApiClient(this.b.url, this.b.key)];
  }

  #server(index: number): TestServer {
    const server = this.#servers[index];
    if (server === undefined) throw new Error("No server runs before the first test");
    return server;
  }
}
