import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import { deadlineAfter, type UsageSample } from "@atoll/protocol";
import { expect, test } from "vitest";
import { patience } from "../support/patience.ts";
import { createIn, openTestManager, readAll, start } from "../support/test-manager.ts";

const echo = [
  "import socket",
  "s=socket.create_server(('127.0.0.1',8000))",
  "print('listens', flush=True)",
  "c,_=s.accept()",
  "while True:",
  "  d=c.recv(65536)",
  "  if not d: break",
  "  c.sendall(d+d)",
  "c.close()",
].join("\n");

/** Sends 5,000 bytes through the proxy, and reads 300. */
const client = [
  "import socket",
  "c=socket.create_connection(('127.0.0.1',3128))",
  "c.sendall(b'CONNECT outside.test:80 HTTP/1.1\\r\\nHost: outside.test:80\\r\\n\\r\\n')",
  "f=c.makefile('rb')",
  "while f.readline().strip(): pass",
  "c.sendall(b'x'*5000)",
  "print(len(f.read(300)))",
].join("\n");

test("the history counts what ports and the proxy carry, and what a sandbox uses, in every sample", async () => {
  const outside = createServer((socket) => {
    let received = 0;
    socket.on("error", () => undefined);
    socket.on("data", (data: Buffer) => {
      received += data.byteLength;
      if (received === 5_000) socket.write(Buffer.alloc(300));
    });
  });
  await new Promise<void>((resolve) => outside.listen(0, "127.0.0.1", resolve));
  const { port } = outside.address() as AddressInfo;
  const host = await openTestManager({
    proxyPort: 3128,
    monitor: { intervalMs: 50, keep: 4 },
    onEgress: () => async () => {
      const socket = connect(port, "127.0.0.1");
      await once(socket, "connect");
      return { verdict: "allowed", socket };
    },
  });
  const { manager } = host;
  const id = await createIn(manager);
  const last = (): UsageSample | undefined => manager.monitor.history(id).samples.at(-1);

  const server = await start(manager, id, { argv: ["python3", "-c", echo] });
  await expect.poll(() => server.info().stdoutBytes).toBe(8);
  const connection = await manager.dial(id, 8000, { signal: deadlineAfter(60_000 * patience) });
  connection.end(Buffer.alloc(1_000));
  let echoed = 0;
  for await (const chunk of connection) echoed += (chunk as Buffer).byteLength;
  expect(echoed).toBe(2_000);
  await expect.poll(last).toMatchObject({ sentBytes: 2_000, receivedBytes: 1_000 });

  const ended = await start(manager, id, { argv: ["python3", "-c", client] });
  await ended.waitEnd();
  expect((await readAll(ended)).text).toBe("300\n");
  await expect.poll(last).toMatchObject({ sentBytes: 7_000, receivedBytes: 1_300 });

  await start(manager, id, "head -c 3M /dev/zero > file; sleep 600");
  await expect.poll(() => last()?.diskBytes).toBeGreaterThan(3 * 1024 * 1024);
  await expect.poll(() => last()?.processes).toBeGreaterThan(0);
  const sample = last();
  expect(sample?.memoryBytes).toBeGreaterThan(0);
  expect(sample?.uptimeMs).toBeGreaterThan(0);
  expect(sample?.cpuMs).toBeGreaterThan(0);
  const { samples, kept, intervalMs } = manager.monitor.history(id);
  expect([samples.length, kept, intervalMs]).toEqual([4, 4, 50]);
  expect(manager.monitor.history(id, (samples[2]?.atMs ?? 0) + 1).samples.length).toBeLessThan(4);
  expect(manager.monitor.sampler.totals.sums).toMatchObject({ sentBytes: 7_000, receivedBytes: 1_300 });
  await host.dispose();
  await new Promise((resolve) => outside.close(resolve));
});
