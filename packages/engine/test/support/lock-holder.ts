import { EngineLock } from "../../src/store/engine-lock.ts";

/** This server only holds the given lock, until it is killed. */
await EngineLock.acquire(process.argv[2] ?? "");
process.stdout.write("held\n");
setInterval(() => undefined, 1_000_000);
