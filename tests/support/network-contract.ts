import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import type { EgressRequest, EgressHandler, Sandbox } from "@atoll/engine";
import type { DriverName } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Conversation, openTestEngine, runIn, type TestEngine } from "./test-engine.ts";

const deadline = (): AbortSignal => AbortSignal.timeout(120_000);

/** Tests what a sandbox can reach, and what can reach it, under every driver. */
export function networkContract(driver: DriverName): void {
  describe(`network under ${driver}`, () => {
    let host: TestEngine;
    let sandbox: Sandbox;
    let outside: Server;
    const asks: EgressRequest[] = [];

    const onEgress: EgressHandler = async (ask) => {
      asks.push(ask);
      if (ask.host === "allowed.test") {
        const socket = connect((outside.address() as AddressInfo).port, "127.0.0.1");
        return { verdict: "allowed", socket };
      }
      if (ask.host === "nowhere.test") return { verdict: "unknown_name", reason: "no such name" };
      return { verdict: "refused", reason: "not on the list" };
    };

    beforeAll(async () => {
      outside = createServer((request, response) => {
        response.end(`${request.method} ${request.url} host=${request.headers.host}`);
      });
      await new Promise<void>((resolve) => {
        outside.listen(0, "127.0.0.1", resolve);
      });
      host = await openTestEngine();
      sandbox = await host.engine.create({ driver }, { onEgress });
      await sandbox.startProxy(3128, { signal: deadline() });
    });
    afterAll(async () => {
      await host.dispose();
      outside.close();
    });

    test("a port inside is reached from the host, in both directions, with half-close", async () => {
      const script = [
        "import socket",
        "s=socket.create_server(('127.0.0.1',8080)); print('listening',flush=True)",
        "c,_=s.accept(); d=b''",
        "while True:",
        "  b=c.recv(65536)",
        "  if not b: break",
        "  d+=b",
        "c.sendall(b'got %d' % len(d)); c.close()",
      ].join("\n");
      const server = await sandbox.spawn({ argv: ["python3", "-c", script] });
      await new Conversation(server).until(/listening/);
      const connection = await sandbox.dial(8080, { signal: deadline() });
      connection.end(Buffer.alloc(1_000_000, "x"));
      const chunks: Buffer[] = [];
      for await (const chunk of connection) chunks.push(chunk as Buffer);
      expect(Buffer.concat(chunks).toString()).toBe("got 1000000");
    });

    test("a connection to a port without a listener is refused", async () => {
      await expect(sandbox.dial(9, { signal: deadline() })).rejects.toMatchObject({
        details: { errno: "ECONNREFUSED" },
      });
    });

    const fetchThrough = (url: string, proxy: string): string =>
      [
        "import urllib.request as u, urllib.error as e, sys",
        `o=u.build_opener(u.ProxyHandler({'http':'${proxy}','https':'${proxy}'}))`,
        `try: print(o.open('${url}').read().decode())`,
        "except e.HTTPError as x: print(x.code, x.read().decode())",
        "except Exception as x: print('error', x)",
      ].join("\n");

    test("an allowed name is reached through the HTTP proxy inside, by name and not by address", async () => {
      const { output } = await runIn(sandbox, [
        "python3",
        "-c",
        fetchThrough("http://allowed.test:81/path?x=1", "http://127.0.0.1:3128"),
      ]);
      expect(output).toBe("GET /path?x=1 host=allowed.test:81\n");
      expect(asks).toContainEqual({ host: "allowed.test", port: 81, protocol: "http" });
    });

    test("a request to a refused name gets a 403 with the reason", async () => {
      const { output } = await runIn(sandbox, [
        "python3",
        "-c",
        fetchThrough("http://evil.test/", "http://127.0.0.1:3128"),
      ]);
      expect(output).toMatch(/^403 .*evil\.test.*not on the list/);
      const https = await runIn(sandbox, [
        "python3",
        "-c",
        fetchThrough("https://evil.test/", "http://127.0.0.1:3128"),
      ]);
      expect(https.output).toMatch(/403/);
      expect(asks).toContainEqual({ host: "evil.test", port: 443, protocol: "http-connect" });
    });

    test("SOCKS5 connections to names are checked and relayed", async () => {
      const script = [
        "import socket",
        "def go(name):",
        "  s=socket.create_connection(('127.0.0.1',3128)); s.sendall(b'\\x05\\x01\\x00')",
        "  assert s.recv(2)==b'\\x05\\x00'",
        "  s.sendall(b'\\x05\\x01\\x00\\x03'+bytes([len(name)])+name+b'\\x00\\x50'); r=s.recv(10)",
        "  if r[1]: return 'code %d' % r[1]",
        "  s.sendall(b'GET /socks HTTP/1.0\\r\\nHost: h\\r\\n\\r\\n'); d=b''",
        "  while True:",
        "    b=s.recv(4096)",
        "    if not b: return d.split(b'\\r\\n\\r\\n')[1].decode()",
        "    d+=b",
        "print(go(b'allowed.test')); print(go(b'evil.test'))",
      ].join("\n");
      const { output } = await runIn(sandbox, ["python3", "-c", script]);
      expect(output).toBe("GET /socks host=h\ncode 2\n");
      expect(asks).toContainEqual({ host: "allowed.test", port: 80, protocol: "socks5" });
    });

    test("a sandbox has only loopback, and cannot resolve names", async () => {
      const { port: hostPort } = outside.address() as AddressInfo;
      const script = [
        "import socket",
        "def t(f):",
        "  try: f(); print('reached')",
        "  except OSError as e: print('no')",
        "s=socket.socket(); s.settimeout(2); t(lambda: s.connect(('1.1.1.1',53)))",
        "u=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); t(lambda: u.sendto(b'x',('8.8.8.8',53)))",
        "t(lambda: socket.getaddrinfo('example.com',80))",
        `h=socket.socket(); h.settimeout(2); t(lambda: h.connect(('127.0.0.1',${hostPort})))`,
      ].join("\n");
      expect((await runIn(sandbox, ["python3", "-c", script])).output).toBe("no\nno\nno\nno\n");
    });
  });
}
