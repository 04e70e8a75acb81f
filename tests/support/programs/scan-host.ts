/**
 * Starts an engine on a new data directory, which then scans the host's files. Run as `scan-host.ts <dataDir>`.
 */
import { Engine } from "@atoll/engine";
import { TemplateName } from "@atoll/protocol";
import { guestBinaryPath } from "../../../tools/setup/guest.mjs";

const [dataDir = ""] = process.argv.slice(2);
const engine = await Engine.open({ dataDir, guestPath: guestBinaryPath() });
await engine.templates.get(TemplateName.parse("host"));
await engine.close();
