import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { hasErrno } from "@atoll/host";

/**
 * For a server that has to come back where it was. Below the ports that the kernel gives to outgoing connections: one
 * of those could take it while no server listens, the client's own attempts among them.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(15_000, 30_000);
    const server = createServer().listen(port, "127.0.0.1");
    try {
      await once(server, "listening");
    } catch (error) {
      if (hasErrno(error, "EADDRINUSE")) continue;
      throw error;
    }
    server.close();
    await once(server, "close");
    return port;
  }
}
