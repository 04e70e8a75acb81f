import { once } from "node:events";
import { open } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import type { ContainerId } from "@atoll/protocol";

export const runningStack = "goroutine 1 [select]:\nkernel.(*Task).block(1)\nkernel.(*Task).run(1)";
export const stoppedStack = "goroutine 1 [sync.Cond.Wait]:\nkernel.(*Task).doStop(1)\nkernel.(*Task).run(1)";

/** Listens on the same socket as runsc, and counts as it does. Each answer can be replaced. */
export class FakeSentry implements AsyncDisposable {
  readonly calls: string[] = [];
  frozen = 0;
  /** The stacks that it returns for its threads. */
  stacks = (): string => (this.frozen > 0 ? stoppedStack : runningStack);
  /** Sent instead of an answer, before the connection is closed. */
  instead: string | undefined;
  #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async listen(stateDir: string, id: ContainerId): Promise<FakeSentry> {
    const server = createServer();
    const sentry = new FakeSentry(server);
    server.on("connection", (socket) => sentry.#serve(socket));
    const directory = await open(stateDir, "r");
    server.listen(`/proc/self/fd/${directory.fd}/runsc-${id}.sock`);
    await once(server, "listening");
    await directory.close();
    return sentry;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    await once(this.#server, "close");
  }

  #serve(socket: Socket): void {
    socket.once("data", (data) => {
      const { method } = JSON.parse(data.toString()) as { method: string };
      this.calls.push(method);
      socket.end(this.instead ?? this.#answer(method));
    });
  }

  #answer(method: string): string {
    switch (method) {
      case "containerManager.Pause":
        this.frozen += 1;
        return answer({});
      case "containerManager.Resume":
        this.frozen -= 1;
        if (this.frozen < 0) throw new Error("Woken once too often");
        return answer({});
      case "debug.Stacks":
        return answer(this.stacks());
      default:
        return JSON.stringify({ success: false, err: "unknown method", result: null });
    }
  }
}

function answer(result: unknown): string {
  return JSON.stringify({ success: true, err: "", result });
}
