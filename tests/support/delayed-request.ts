import { once } from "node:events";
import { createServer, request, type IncomingMessage } from "node:http";
import { connect, type AddressInfo } from "node:net";

/** A proxy before a server that delays the first request of one kind until `release`. */
export interface DelayedRequest extends AsyncDisposable {
  url: string;
  /** Resolves when the request has reached the proxy. The server has not received it yet. */
  arrived: Promise<void>;
  release(): void;
}

export async function delayRequest(serverUrl: string, method: string, path: string): Promise<DelayedRequest> {
  let release = (): void => undefined;
  let arrive = (): void => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const arrived = new Promise<void>((resolve) => {
    arrive = resolve;
  });
  const proxy = createServer((incoming, outgoing) => {
    void (async () => {
      if (incoming.method === method && incoming.url === path) {
        arrive();
        await released;
      }
      const { method: asked, headers, url } = incoming;
      const onward = request(`${serverUrl}${url}`, { method: asked, headers }).on("error", () => outgoing.destroy());
      incoming.pipe(onward);
      const [answer] = (await once(onward, "response")) as [IncomingMessage];
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    })();
  });
  // Streams of commands are WebSockets: their bytes pass unchanged in both directions.
  proxy.on("upgrade", ({ method: asked, url, rawHeaders }, client, head) => {
    const { hostname, port } = new URL(serverUrl);
    const onward = connect(Number(port), hostname);
    onward.on("error", () => client.destroy());
    client.on("error", () => onward.destroy());
    client.on("close", () => onward.destroy());
    const lines = rawHeaders.map((text, index) => (index % 2 === 0 ? `${text}: ` : `${text}\r\n`)).join("");
    onward.write(`${asked} ${url} HTTP/1.1\r\n${lines}\r\n`);
    onward.write(head);
    onward.pipe(client).pipe(onward);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    arrived,
    release,
    [Symbol.asyncDispose]: async () => {
      proxy.closeAllConnections();
      proxy.close();
    },
  };
}
