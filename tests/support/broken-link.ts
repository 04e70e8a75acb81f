import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A way to a server that can be cut, as a network is: what is under way ends, and nothing new gets through. */
export interface CutLink extends AsyncDisposable {
  url: string;
  cut(): void;
  mend(): void;
}

export async function openCutLink(serverUrl: string): Promise<CutLink> {
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
