import { createInterface } from "node:readline";
import { Atoll, Sandbox } from "@atoll/sdk";
import { openPrivateServer } from "../../../packages/cli/src/host/private-server.ts";

/** Uses the private server of a directory until it is ended: prints where it is, then does what each line asks. */
const [directory = ""] = process.argv.slice(2);
const print = (value: object): void => void process.stdout.write(`${JSON.stringify(value)}\n`);

process.on("SIGTERM", () => process.exit(0));
const { url, key, isNew } = await openPrivateServer({ directory, signal: new AbortController().signal });
print({ url, key, isNew });
const client = new Atoll({ baseUrl: url, apiKey: key });
for await (const word of createInterface({ input: process.stdin })) {
  if (word === "run") {
    const { stdout } = await client.run({ language: "bash", code: "echo $((6 * 7))" });
    print({ stdout });
  } else if (word === "snapshot") {
    const sandbox = await Sandbox.create({ client });
    await sandbox.snapshot("kept");
    print({ done: true });
  } else {
    const snapshots = (await client.snapshots.list()).map(({ name }) => name);
    let sandboxes = 0;
    for await (const { state } of client.sandboxes()) if (state !== "killed") sandboxes += 1;
    print({ snapshots, sandboxes });
  }
}
