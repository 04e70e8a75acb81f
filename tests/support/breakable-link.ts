import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A proxy to a server that can be cut like a network: open connections end, and new ones are refused. */
export interface BreakableLink extends AsyncDisposable {
  url: string;
  cut(): void;
  mend(): void;
}

export async function openBreakableLink(serverUrl: string): Promise<BreakableLink> {
  const { hostname, port } = new URL(serverUrl);
  const open = new Set<Socket>();
  let isCut = false;
  const proxy = createServer((client) => {
    if (isCut) return void client.destroy();
    const onward = connect(Number(port), hostname);
    const ends = [client, onward];
    for (const end of ends) {
      open.add(end);
      end.on("error", () => undefined);
      end.on("close", () => {
        open.delete(end);
        for (const other of ends) other.destroy();
      });
    }
    client.pipe(onward).pipe(client);
  });
  const cut = (): void => {
    isCut = true;
    for (const end of open) end.destroy();
  };
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    cut,
    mend: () => {
      isCut = false;
    },
    [Symbol.asyncDispose]: async () => {
      cut();
      proxy.close();
      await once(proxy, "close");
    },
  };
}
