import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Sandbox } from "@atoll/engine";
import type { DriverName } from "@atoll/protocol";
import { PortProxy, PortTokens, waitForPort } from "@atoll/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Conversation, openTestEngine, type TestEngine } from "./test-engine.ts";

/** A server that answers GET with the request, PUT with a digest of the body, and echoes all bytes after an upgrade. */
const program = `
import socket, sys, hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class H(BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  def log_message(self, *a): pass
  def answer(self, body):
    self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
    self.wfile.write(body)
  def do_GET(self):
    if self.headers.get("Upgrade") == "echo":
      self.wfile.write(b"HTTP/1.1 101 Go\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n")
      self.close_connection = True
      while True:
        d = self.connection.recv(65536)
        if not d: return
        self.connection.sendall(d)
    body = (self.path + " " + self.headers["Host"] + " " + self.headers["X-Forwarded-Prefix"]).encode()
    self.answer(body)
  def do_PUT(self):
    n = int(self.headers["Content-Length"]); h = hashlib.sha256()
    while n:
      d = self.rfile.read(min(n, 65536)); n -= len(d); h.update(d)
    body = h.hexdigest().encode()
    self.answer(body)
class S(ThreadingHTTPServer):
  address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = S((sys.argv[1], int(sys.argv[2])), H); print("listening", flush=True); s.serve_forever()
`;

/** Tests ports in a sandbox through the proxy, under every driver. */
export function portContract(driver: DriverName): void {
  describe(`ports under ${driver}`, () => {
    let host: TestEngine;
    let sandbox: Sandbox;
    let outside: Server;
    let base: string;
    const tokens = new PortTokens(Buffer.alloc(32, 7));

    const url = (port: number, path = "/"): string => `${base}/p/${sandbox.id}/${port}${path}`;
    const get = (port: number, path?: string, init: RequestInit = {}): Promise<Response> =>
      fetch(url(port, path), { ...init, headers: { "x-port-token": tokens.tokenFor(sandbox.id, port) } });

    beforeAll(async () => {
      host = await openTestEngine();
      sandbox = await host.engine.create({ driver });
      const proxy = new PortProxy({
        dial: async (id, ...how) => host.engine.get(id).dial(...how),
        tokens,
        isPublic: () => false,
        baseUrl: () => base,
      });
      outside = createServer((incoming, response) => void proxy.handle(incoming, response));
      outside.on("upgrade", (incoming, socket, head) => void proxy.upgrade(incoming, socket, head));
      outside.listen(0, "127.0.0.1");
      await once(outside, "listening");
      base = `http://127.0.0.1:${(outside.address() as AddressInfo).port}`;
      const server = await sandbox.spawn({ argv: ["python3", "-c", program, "127.0.0.1", "8000"] });
      await new Conversation(server).until(/listening/);
    });
    afterAll(async () => {
      outside.closeAllConnections();
      outside.close();
      await host.dispose();
    });

    test("a request reaches the server with the Host that it expects, and the response comes back", async () => {
      const response = await get(8000, "/a/b?c=%20");
      expect(await response.text()).toBe(`/a/b?c=%20 localhost:8000 /p/${sandbox.id}/8000`);
    });

    test("a large body arrives completely", async () => {
      const body = Buffer.alloc(20_000_000, "atoll");
      const response = await get(8000, "/", { method: "PUT", body });
      expect(await response.text()).toBe(createHash("sha256").update(body).digest("hex"));
    });

    test("an upgraded connection is relayed in both directions", async () => {
      const upgrading = request(url(8000), {
        headers: { connection: "upgrade", upgrade: "echo", "x-port-token": tokens.tokenFor(sandbox.id, 8000) },
      }).end();
      const [, socket] = (await once(upgrading, "upgrade")) as [unknown, Socket];
      const sent = Buffer.alloc(3_000_000, "echo");
      socket.end(sent);
      const received: Buffer[] = [];
      for await (const chunk of socket) received.push(chunk as Buffer);
      expect(Buffer.concat(received).equals(sent)).toBe(true);
    });

    test("waiting for a port also finds it on the IPv6 loopback", async () => {
      const dial = (...how: Parameters<Sandbox["dial"]>) => sandbox.dial(...how);
      await expect(waitForPort(dial, 8001, { timeoutMs: 100 })).rejects.toMatchObject({ code: "timed_out" });
      const waiting = waitForPort(dial, 8001, { timeoutMs: 60_000 });
      const server = await sandbox.spawn({ argv: ["python3", "-c", program, "::1", "8001"] });
      server.discardOutput();
      await waiting;
      expect((await get(8001)).status).toBe(200);
    });

    test("a port without a listener, and a sandbox that has ended, get an error response", async () => {
      const dead = await get(9);
      expect([dead.status, await dead.text()]).toEqual([502, `Nothing listens on port 9 in sandbox ${sandbox.id}.\n`]);
      const { id } = sandbox;
      await sandbox.kill();
      const response = await fetch(`${base}/p/${id}/8000/`, { headers: { "x-port-token": tokens.tokenFor(id, 8000) } });
      expect([response.status, await response.text()]).toEqual([410, `Sandbox ${id} has ended.\n`]);
    });
  });
}
