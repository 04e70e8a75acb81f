import { execFile } from "node:child_process";
import { connect } from "node:net";
import { promisify } from "node:util";
import type { PortInfo } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

/**
 * A server that answers with the method, the offer and the body that arrived. After a switch to `echo` it repeats the
 * bytes that follow.
 */
const program = String.raw`
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class H(BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  def log_message(self, *a): pass
  def body(self):
    if self.headers.get("Transfer-Encoding") is None:
      return self.rfile.read(int(self.headers.get("Content-Length", "0")))
    whole = b""
    while True:
      n = int(self.rfile.readline(), 16); piece = self.rfile.read(n); self.rfile.readline()
      if n == 0: return whole
      whole += piece
  def do_GET(self):
    body = self.body()
    if self.headers.get("Upgrade") == "echo":
      self.wfile.write(b"HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); self.close_connection = True
      return self.wfile.write(self.connection.recv(65536))
    answer = " ".join([self.command, str(self.headers.get("Upgrade")), ""]).encode() + body
    self.send_response(200); self.send_header("Content-Length", str(len(answer))); self.end_headers()
    self.wfile.write(answer)
  do_POST = do_GET
ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
`;

let server: TestServer;
let port: PortInfo;

beforeAll(async () => {
  server = await startTestServer();
  const api = new ApiClient(server.url, server.key);
  const { id } = (await api.create()).sandbox;
  await api.start(id, { argv: ["python3", "-c", program] });
  port = (await api.ask<PortInfo>("POST", `/sandboxes/${id}/ports/8000/wait`, {})).body;
});
afterAll(() => server.dispose());

/** Sends a request and returns everything that comes back until the other side closes, or until `last` came. */
async function say(method: string, headers: readonly string[], body: string, last = "\0"): Promise<string> {
  const { host, hostname, port: number, pathname } = new URL(port.url);
  const socket = connect({ host: hostname, port: Number(number) });
  const lines = [`${method} ${pathname} HTTP/1.1`, `Host: ${host}`, `X-Port-Token: ${port.token}`, ...headers];
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  socket.write(body);
  let text = "";
  for await (const piece of socket) {
    text += String(piece);
    if (text.endsWith(last)) break;
  }
  return text;
}

describe("an offer of another protocol to a port", () => {
  test("does not change the body of a request of curl", async () => {
    const args = ["-sS", "--http2", "--max-time", "60", "-H", `X-Port-Token: ${port.token}`];
    const curl = promisify(execFile);
    expect((await curl("curl", [...args, "-d", "x=1", port.url])).stdout).toBe("POST None x=1");
    expect((await curl("curl", [...args, port.url])).stdout).toBe("GET None ");
  });

  test.for(["h2c", "websocket", "echo", "TLS/1.2, HTTP/2.0"])("of %s is ignored if there is a body", async (name) => {
    const offer = ["Connection: Upgrade", `Upgrade: ${name}`];
    const known = await say("POST", [...offer, "Content-Length: 4"], "four", "four");
    expect(known).toMatch(/^HTTP\/1\.1 200 [^]*POST None four$/);
    const chunked = await say("POST", [...offer, "Transfer-Encoding: chunked"], "4\r\nfour\r\n0\r\n\r\n", "four");
    expect(chunked).toMatch(/^HTTP\/1\.1 200 [^]*POST None four$/);
  });

  test("of HTTP/2 is not forwarded, and the connection serves the next request", async () => {
    const { host, pathname } = new URL(port.url);
    const token = `X-Port-Token: ${port.token}`;
    const next = `POST ${pathname} HTTP/1.1\r\nHost: ${host}\r\n${token}\r\nContent-Length: 4\r\n\r\nnext`;
    const first = await say(
      "POST",
      ["Connection: Upgrade", "Upgrade: h2c", "Content-Length: 5"],
      `first${next}`,
      "next",
    );
    expect(first).toMatch(/POST None first[^]*POST None next$/);
  });

  test.for(["Accept: */*", "Content-Length: 0"])("that the program accepts is relayed, with %s", async (header) => {
    const text = await say("GET", ["Connection: Upgrade", "Upgrade: echo", header], "and back", "and back");
    expect(text).toMatch(/^HTTP\/1\.1 101 [^]*\r\n\r\nand back$/);
  });

  test("of a WebSocket is forwarded", async () => {
    const text = await say("GET", ["Connection: Upgrade", "Upgrade: websocket"], "", "websocket ");
    expect(text).toMatch(/^HTTP\/1\.1 200 [^]*GET websocket $/);
  });
});
