import { randomUUID } from "node:crypto";
import { defineService, type Context } from "@atoll/live/app";
import { WebSocketServer, type WebSocket } from "ws";
import type { Delivery, rooms } from "./rooms.ts";

interface Settings {
  port: number;
}

/**
 * Leads text between WebSockets and the rooms. The server and the sockets are no state: `keep` holds them while the
 * code of this file changes. Their listeners only cast to the service, whose handlers are found at every message.
 */
export const gateway = defineService({
  init: ({ port }: Settings): Settings => ({ port }),
  // Also runs when the process was started again: the rooms are as they were, but no one is connected.
  async open({ port }, context) {
    const sockets = await socketsOf(context);
    await context.service<typeof rooms>("rooms").call("keepOnly", [...sockets.keys()]);
    await context.keep("server", () => listen(port, sockets, context), close);
  },
  cast: {
    async enter(_state, client: string, context) {
      await deliver(await context.service<typeof rooms>("rooms").call("enter", client), context);
    },
    async receive(_state, message: { client: string; text: string }, context) {
      await deliver(await context.service<typeof rooms>("rooms").call("receive", message), context);
    },
    async leave(_state, client: string, context) {
      (await socketsOf(context)).delete(client);
      await deliver(await context.service<typeof rooms>("rooms").call("leave", client), context);
    },
  },
});

type Sockets = Map<string, WebSocket>;

const socketsOf = (context: Context): Promise<Sockets> => context.keep("sockets", (): Sockets => new Map());

async function listen(port: number, sockets: Sockets, context: Context): Promise<WebSocketServer> {
  const server = new WebSocketServer({ port });
  const self = context.service<typeof gateway>(context.self.name ?? "gateway");
  server.on("connection", (socket) => {
    const client = randomUUID();
    sockets.set(client, socket);
    socket.on("message", (data: Buffer) => self.cast("receive", { client, text: data.toString() }));
    socket.on("close", () => self.cast("leave", client));
    socket.on("error", () => socket.terminate());
    self.cast("enter", client);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("listening", resolve);
    server.once("error", reject);
  });
  return server;
}

async function close(server: WebSocketServer): Promise<void> {
  for (const socket of server.clients) socket.close(1001);
  await new Promise((resolve) => server.close(resolve));
}

async function deliver(deliveries: readonly Delivery[], context: Context): Promise<void> {
  const sockets = await socketsOf(context);
  for (const { to, text } of deliveries) {
    for (const client of to) sockets.get(client)?.send(text);
  }
}
