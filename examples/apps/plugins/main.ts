import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { LiveManager } from "@atoll/live";
import { PluginHost } from "./plugin-host.ts";

/** Passes each line of stdin through the plug-ins. The server is named by ATOLL_API_URL and ATOLL_API_KEY. */
await using manager = new LiveManager();
const host = new PluginHost(manager);
const plugins = await host.load(fileURLToPath(new URL("installed", import.meta.url)));
process.stderr.write(`plug-ins: ${plugins.join(", ")}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const { text, failures } = await host.apply(line);
  process.stdout.write(`${text}\n`);
  for (const { plugin, reason } of failures) process.stderr.write(`${plugin} failed: ${reason}\n`);
}
