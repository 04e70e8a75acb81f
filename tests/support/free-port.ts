import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { hasErrno } from "@atoll/host";

/**
 * Finds a port for a server that restarts on the same port. The port is below the range that the kernel gives to
 * outgoing connections: otherwise such a connection, even one of the client itself, could take the port while no server
 * listens.
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
