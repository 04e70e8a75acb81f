import { readFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

const MiB = 1024 * 1024;

/** `ATOLL_TEST_TRANSFER_MIB=1024` transfers a gigabyte, which tests the same and takes longer. */
const bytes = Number(process.env["ATOLL_TEST_TRANSFER_MIB"] ?? "256") * MiB;

/** Buffers, sockets and garbage need this much memory, far less than what is transferred. */
const allowedGrowthBytes = 96 * MiB;

let server: TestServerProcess;
let api: ApiClient;
let id: string;

beforeAll(async () => {
  server = await startTestServerProcess();
  api = new ApiClient(server.url, server.key);
  ({ id } = (await api.create()).sandbox);
});
afterAll(() => server.dispose());

/** Returns how far the server's memory rose during the work above its level before. */
async function growthDuring(work: () => Promise<void>): Promise<number> {
  const status = async (field: string): Promise<number> => {
    const text = await readFile(`/proc/${server.pid}/status`, "utf8");
    return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(text)?.[1]) * 1024;
  };
  // This resets the kernel's record of the peak.
  await writeFile(`/proc/${server.pid}/clear_refs`, "5");
  const before = await status("VmRSS");
  await work();
  return (await status("VmHWM")) - before;
}

async function receive(path: string): Promise<number> {
  const answer = await api.fetch("GET", path);
  expect(answer.status).toBe(200);
  let received = 0;
  for await (const piece of answer.body as unknown as AsyncIterable<Uint8Array>) received += piece.byteLength;
  return received;
}

function zeros(total: number): ReadableStream<Uint8Array> {
  const piece = new Uint8Array(256 * 1024);
  let left = total;
  return new ReadableStream({
    pull: (controller) => {
      if (left === 0) return controller.close();
      const size = Math.min(left, piece.byteLength);
      left -= size;
      controller.enqueue(piece.subarray(0, size));
    },
  });
}

test("a large download takes no more memory than a small one", async () => {
  await api.run(id, { argv: ["truncate", "-s", String(bytes), "sparse"] });
  const growth = await growthDuring(async () => {
    expect(await receive(`/sandboxes/${id}/files?path=sparse`)).toBe(bytes);
  });
  expect(growth).toBeLessThan(allowedGrowthBytes);
});

test("a large upload takes no more memory than a small one", async () => {
  const growth = await growthDuring(async () => {
    const body = zeros(bytes);
    const answer = await api.fetch("PUT", `/sandboxes/${id}/files?path=uploaded`, { body, duplex: "half" });
    expect(await answer.json()).toMatchObject({ sizeBytes: bytes });
  });
  expect(growth).toBeLessThan(allowedGrowthBytes);
  await api.fetch("DELETE", `/sandboxes/${id}/files?path=uploaded`);
});

test("a reader that stops in the middle delays no other request", async () => {
  const leaving = new AbortController();
  const growth = await growthDuring(async () => {
    const answer = await api.fetch("GET", `/sandboxes/${id}/files?path=sparse`, { signal: leaving.signal });
    await answer.body?.getReader().read();
    // While the reader does not read, other requests are served.
    expect((await api.run(id, { argv: ["echo", "hi"] })).stdout).toBe("hi\n");
    leaving.abort();
  });
  expect(growth).toBeLessThan(allowedGrowthBytes);
});
