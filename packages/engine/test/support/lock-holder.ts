import { EngineLock } from "../../src/store/engine-lock.ts";

/** A server that does nothing but hold the lock it is given, until it is killed. */
await EngineLock.acquire(process.argv[2] ?? "");
process.stdout.write("held\n");
setInterval(() => undefined, 1_000_000);
