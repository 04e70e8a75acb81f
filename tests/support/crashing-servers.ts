import type { SharedStore } from "./shared-store.ts";
import { startTestServer, startTestServerProcess, type TestServer, type TestServerProcess } from "./test-server.ts";

/** Not so short that a busy machine loses a lease by itself. */
export const leaseTtl = ["--lease-ttl-ms", "15000"];

interface CrashingServers {
  flags: string[];
  /** Two that can be killed. */
  a: TestServerProcess;
  b: TestServerProcess;
  /** One that stays. */
  c: TestServer;
}

/** Three servers on one store, whose leases run out while a test waits. */
export async function startCrashingServers(store: SharedStore): Promise<CrashingServers> {
  const flags = [...store.flags(), ...leaseTtl];
  const [a, b, c] = await Promise.all([
    startTestServerProcess({ flags }),
    startTestServerProcess({ flags }),
    startTestServer({ flags }),
  ]);
  return { flags, a, b, c };
}
