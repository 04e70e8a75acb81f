import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { SandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { id, PortLab } from "./port-lab.ts";

let lab: PortLab;
beforeEach(async () => {
  lab = await PortLab.open();
});
afterEach(() => lab.close());

describe("WebSockets", () => {
  let socketServer: WebSocketServer;
  beforeEach(() => {
    socketServer = new WebSocketServer({ server: lab.inside });
    socketServer.on("connection", (socket, request) => {
      lab.seen.push(request);
      socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
    });
  });
  const dialSocket = (path: string, headers: Record<string, string> = { "x-port-token": lab.token }): WebSocket =>
    new WebSocket(lab.url(path).replace("http:", "ws:"), ["chat"], { headers });

  test("are forwarded both ways, with any number of bytes", async () => {
    const socket = dialSocket("/socket?x=1", { "x-port-token": lab.token, origin: lab.base });
    await once(socket, "open");
    expect(socket.protocol).toBe("chat");
    expect(lab.seen[0]?.url).toBe("/socket?x=1");
    expect(lab.seen[0]?.headers.origin).toBe(`http://localhost:${lab.port}`);
    const big = Buffer.alloc(5_000_000, "b");
    socket.send(big);
    const [echo] = (await once(socket, "message")) as [Buffer];
    expect(echo.equals(big)).toBe(true);
    expect(lab.counts).toEqual([1]);
    socket.close();
    await once(socket, "close");
    await expect.poll(() => lab.counts).toEqual([1, 0]);
  });

  test("accept the token in the query", async () => {
    const socket = dialSocket(`/?atoll_token=${lab.token}`, {});
    await once(socket, "open");
    expect(lab.seen[0]?.url).toBe("/");
    socket.terminate();
  });

  test.for([
    ["without a token", {}, 403],
    ["to a dead port", { dead: true }, 502],
  ] as const)("%s are refused with a text", async ([, how, status]) => {
    const deadPort = "dead" in how;
    if (deadPort) lab.dialError = new SandboxError("spawn_failed", "Cannot", { details: { errno: "ECONNREFUSED" } });
    const socket = dialSocket("/", deadPort ? { "x-port-token": lab.token } : {});
    const [, response] = (await once(socket, "unexpected-response")) as [unknown, IncomingMessage];
    expect(response.statusCode).toBe(status);
    socket.on("error", () => undefined);
    socket.terminate();
  });

  test("that are refused inside are refused with the same reply, and the connection is closed", async () => {
    lab.inside.removeAllListeners("upgrade");
    lab.inside.on("upgrade", (_request, socket: Socket) =>
      socket.end("HTTP/1.1 401 No\r\nContent-Length: 4\r\n\r\nnope"),
    );
    const text = await lab.raw([
      `GET /p/${id}/${lab.port}/ HTTP/1.1`,
      "Host: h",
      `X-Port-Token: ${lab.token}`,
      "Connection: Upgrade",
      "Upgrade: websocket",
    ]);
    expect(text).toMatch(/^HTTP\/1\.1 401 No[^]*connection: close[^]*nope$/i);
  });

  test("end when the port is closed", async () => {
    const socket = dialSocket("/");
    await once(socket, "open");
    socket.on("error", () => undefined);
    lab.proxy.close(id, lab.port + 1);
    expect(socket.readyState).toBe(WebSocket.OPEN);
    lab.proxy.close(id, lab.port);
    await once(socket, "close");
  });
});
