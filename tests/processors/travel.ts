import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Engine, Sandbox } from "@atoll/engine";
import { type SandboxId, TemplateName } from "@atoll/protocol";
import { packSandbox, readPackage, withCopy } from "../support/sandbox-package.ts";
import { Conversation } from "../support/test-engine.ts";

/** The same on both machines, unlike the one of the machine's own programs. */
const template = TemplateName.parse("traveller");

/** What a package is accompanied by. */
interface Traveller {
  id: SandboxId;
  /** The stream of a process that counts lines. */
  counter: number;
}

interface Refusal {
  code: string;
  details: { lacking?: string[] };
}

/** What the lesser machine tells the test. */
export interface Findings {
  cpuFlags: string[];
  /** What it said to a sandbox of the other machine, and to that one's set of features; nothing if it took them. */
  imported: Refusal | undefined;
  opened: Refusal | undefined;
  /** States of the sandboxes that are left. */
  left: string[];
}

export async function bringTemplate(engine: Engine, rootfs: string): Promise<void> {
  await engine.templates.importRootfs(template, { directory: rootfs }, { signal: new AbortController().signal });
}

/** Makes a sandbox that counts lines, has counted two of them, and sleeps; and a package of it. */
export async function sendOff(engine: Engine, to: string): Promise<void> {
  const sandbox = await engine.create({ template });
  const script = "n=0; while read line; do n=$((n+1)); echo $n; done";
  const counter = await sandbox.spawn({ argv: ["/bin/busybox", "sh", "-c", script], stdin: true }, { keep: true });
  await counter.writeStdin("a\nb\n");
  await new Conversation(counter).until(/2\n/);
  await engine.pause(sandbox.id);
  const packed = await packSandbox(engine, sandbox.id);
  await cp(packed, to, { recursive: true });
  await rm(packed, { recursive: true });
  const traveller: Traveller = { id: sandbox.id, counter: counter.streamId };
  await writeFile(join(to, "traveller.json"), JSON.stringify(traveller));
}

/** Imports a package, which stays as it is. */
export function takeIn(engine: Engine, from: string): Promise<Sandbox> {
  return withCopy(from, async (copy) => engine.importSandbox(await readPackage(copy)));
}

/** Counts on. Resolves with what the counter says. */
export async function goOn(engine: Engine, sandbox: Sandbox, from: string): Promise<string> {
  const { counter } = JSON.parse(await readFile(join(from, "traveller.json"), "utf8")) as Traveller;
  await engine.resume(sandbox.id);
  const going = sandbox.attach(counter, { stdoutBytes: 4, stderrBytes: 0 });
  await going.writeStdin("c\n");
  return new Conversation(going).until(/\n/);
}

/** A root filesystem of one static program. */
export async function makeRootfs(directory: string, busybox: string): Promise<void> {
  await Promise.all(
    ["bin", "dev", "etc", "proc", "sys", "tmp"].map((name) => mkdir(join(directory, name), { recursive: true })),
  );
  await cp(busybox, join(directory, "bin/busybox"));
}
