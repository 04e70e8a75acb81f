/**
 * Runs in the machine with the lesser processor: packs a sandbox for the host, and tries to import one of the host's.
 */
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Engine } from "@atoll/engine";
import { SandboxError } from "@atoll/protocol";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { importTemplate, type Findings, packCountingSandbox, importCopy } from "./counting-sandbox.ts";

const [, , exchange = "", dataDir = ""] = process.argv;

const cpuFlags = (/^flags\s*:(.*)$/m.exec(await readFile("/proc/cpuinfo", "utf8"))?.[1] ?? "").trim().split(/\s+/);
const options = { guestPath: guestBinaryPath(), startTimeoutMs: 300_000 };
// Directories that the host shares with the machine cannot be layers of an overlay.
const local = join(dataDir, "from-host");
await cp(join(exchange, "from-host"), local, { recursive: true });
await mkdir(join(dataDir, "engine"));

const theirs = JSON.parse(await readFile(join(local, "features.json"), "utf8")) as string[];
const opened = await reason(Engine.open({ ...options, dataDir: join(dataDir, "engine"), cpuFeatures: theirs }));
const engine = await Engine.open({ ...options, dataDir: join(dataDir, "engine"), cpuFeatures: cpuFlags });
await importTemplate(engine, join(local, "rootfs"));
const imported = await reason(importCopy(engine, join(local, "package")));
const left = engine.list().map(({ state }) => state);
await packCountingSandbox(engine, join(exchange, "from-machine"));
const findings: Findings = { cpuFlags, imported, opened, left };
await writeFile(join(exchange, "findings.json"), JSON.stringify(findings));
for (const { id } of engine.list()) await engine.kill(id);
await engine.close();

/** Returns the code and details of the error, as they are sent over a wire. */
async function reason(promise: Promise<unknown>): Promise<Findings["opened"]> {
  try {
    await promise;
    return undefined;
  } catch (error) {
    if (!(error instanceof SandboxError)) throw error;
    return { code: error.code, details: error.details };
  }
}
