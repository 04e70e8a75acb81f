import type { SharedStore } from "./shared-store.ts";
import { startTestServer, startTestServerProcess, type TestServer, type TestServerProcess } from "./test-server.ts";

/** Lease time that is long enough for a busy machine to renew its leases in time. */
export const leaseTtl = ["--lease-ttl-ms", "15000"];

interface CrashingServers {
  flags: string[];
  /** `a` and `b` can be killed. */
  a: TestServerProcess;
  b: TestServerProcess;
  /** `c` runs until the end of the test. */
  c: TestServer;
}

/** Starts three servers on one store. Their leases expire soon enough for a test to wait. */
export async function startCrashingServers(store: SharedStore): Promise<CrashingServers> {
  const flags = [...store.flags(), ...leaseTtl];
  const [a, b, c] = await Promise.all([
    startTestServerProcess({ flags }),
    startTestServerProcess({ flags }),
    startTestServer({ flags }),
  ]);
  return { flags, a, b, c };
}
