import type { WebSocketLike } from "../environment/environment.ts";
import type { MockProgram } from "./mock-command.ts";
import { answer } from "./mock-fetch.ts";
import { MockSocket } from "./mock-socket.ts";
import { MockWorld } from "./mock-world.ts";

export interface MockConnection {
  apiKey: string;
  baseUrl: string;
  fetch: typeof fetch;
  webSocket: (url: string) => WebSocketLike;
}

/**
 * A server in memory, for tests of programs that use the SDK: the real SDK runs over it. It has sandboxes, commands,
 * files in memory with archives, snapshots and signed URLs, templates by name, events and keys. Commands do what you
 * script; other routes answer `unsupported`.
 *
 * @example
 * const mock = new MockServer();
 * mock.onCommand("make test", ({ stdout }) => {
 *   stdout("all passed\n");
 * });
 * const sandbox = await Sandbox.create(mock.connection);
 * console.log((await sandbox.commands.run("make test")).stdout.trim()); // all passed
 */
export class MockServer {
  readonly #world = new MockWorld();
  readonly #sockets = new Set<MockSocket>();
  #stopping = new AbortController();
  #isDown = false;

  /** Pass this to `new Atoll`, `Sandbox.create` and similar functions. */
  readonly connection: MockConnection = {
    apiKey: this.#world.apiKey,
    baseUrl: "http://mock.invalid",
    fetch: async (input, init) => {
      const request = new Request(input, init);
      if (this.#isDown) throw new TypeError("fetch failed", { cause: refused() });
      request.signal.throwIfAborted();
      return answer(this.#world, request, this.#stopping.signal);
    },
    webSocket: () => {
      if (this.#isDown) throw refused();
      const socket = new MockSocket(this.#world);
      this.#sockets.add(socket);
      socket.addEventListener("close", () => this.#sockets.delete(socket));
      return socket;
    },
  };

  /**
   * Scripts a command line. A string matches as a whole; of several that match the latest runs.
   *
   * @example
   * const mock = new MockServer();
   * mock.onCommand(/^grep /, ({ stderr }) => {
   *   stderr("no such file\\n");
   *   return 2;
   * });
   * const sandbox = await Sandbox.create(mock.connection);
   * console.log((await sandbox.commands.run("grep word file")).exitCode); // 2
   */
  onCommand(line: string | RegExp, program: MockProgram): void {
    this.#world.script(line, program);
  }

  /**
   * Breaks every connection, as a network does. Clients that follow something continue where they were.
   *
   * @example
   * const mock = new MockServer();
   * mock.onCommand("count", async ({ stdin, stdout }) => {
   *   for await (const piece of stdin) stdout(piece);
   * });
   * const sandbox = await Sandbox.create(mock.connection);
   * const count = await sandbox.commands.run("count", { background: true, stdin: true });
   * await count.sendStdin("one ");
   * mock.disconnect();
   * await count.sendStdin("two");
   * await count.closeStdin();
   * console.log((await count.wait()).stdout); // one two
   */
  disconnect(): void {
    for (const socket of this.#sockets) socket.close(1006, "");
  }

  /**
   * Stops answering, like a server that stops; sandboxes and commands go on.
   *
   * @example
   * const mock = new MockServer();
   * const client = new Atoll({ ...mock.connection, reconnectForMs: 100 });
   * mock.stop();
   * console.log(await client.isReady().catch(({ code }) => code)); // unavailable
   */
  stop(): void {
    this.#isDown = true;
    this.#stopping.abort();
    for (const sandbox of this.#world.sandboxes.values()) sandbox.ring();
    this.disconnect();
  }

  /**
   * Starts again with everything that was there.
   *
   * @example
   * const mock = new MockServer();
   * const sandbox = await Sandbox.create(mock.connection);
   * mock.stop();
   * const asked = sandbox.getInfo();
   * mock.start();
   * console.log((await asked).state); // running
   */
  start(): void {
    this.#stopping = new AbortController();
    this.#isDown = false;
  }
}

function refused(): Error {
  return Object.assign(new Error("connect ECONNREFUSED mock.invalid"), { code: "ECONNREFUSED" });
}
