import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Engine, Sandbox } from "@atoll/engine";
import { type SandboxId, TemplateName } from "@atoll/protocol";
import { packSandbox, readPackage, withCopy } from "../support/sandbox-package.ts";
import { Conversation } from "../support/test-engine.ts";

/** A template with the same files on both machines, which have different programs in /usr. */
const template = TemplateName.parse("busybox");

/** Facts about the sandbox that are stored beside its package. */
interface CountingSandbox {
  id: SandboxId;
  /** The stream id of a process that counts lines. */
  counter: number;
}

interface Refusal {
  code: string;
  details: { lacking?: string[] };
}

/** What the lesser machine reports to the test. */
export interface Findings {
  cpuFlags: string[];
  /** The errors for the sandbox of the other machine and for that machine's set of features; undefined if accepted. */
  imported: Refusal | undefined;
  opened: Refusal | undefined;
  /** The states of the sandboxes that are left. */
  left: string[];
}

export async function importTemplate(engine: Engine, rootfs: string): Promise<void> {
  await engine.templates.importRootfs(template, { directory: rootfs }, { signal: new AbortController().signal });
}

/** Makes a sandbox with a process that has counted two lines, pauses it, and packs it. */
export async function packCountingSandbox(engine: Engine, to: string): Promise<void> {
  const sandbox = await engine.create({ template });
  const script = "n=0; while read line; do n=$((n+1)); echo $n; done";
  const counter = await sandbox.spawn({ argv: ["/bin/busybox", "sh", "-c", script], stdin: true }, { keep: true });
  await counter.writeStdin("a\nb\n");
  await new Conversation(counter).until(/2\n/);
  await engine.pause(sandbox.id);
  const packed = await packSandbox(engine, sandbox.id);
  await cp(packed, to, { recursive: true });
  await rm(packed, { recursive: true });
  const facts: CountingSandbox = { id: sandbox.id, counter: counter.streamId };
  await writeFile(join(to, "sandbox.json"), JSON.stringify(facts));
}

/** Imports a copy of a package, so that the package itself does not change. */
export function importCopy(engine: Engine, from: string): Promise<Sandbox> {
  return withCopy(from, async (copy) => engine.importSandbox(await readPackage(copy)));
}

/** Resumes the sandbox and sends its counter one more line. Resolves with the number that it prints. */
export async function resumeCounting(engine: Engine, sandbox: Sandbox, from: string): Promise<string> {
  const { counter } = JSON.parse(await readFile(join(from, "sandbox.json"), "utf8")) as CountingSandbox;
  await engine.resume(sandbox.id);
  const going = sandbox.attach(counter, { stdoutBytes: 4, stderrBytes: 0 });
  await going.writeStdin("c\n");
  return new Conversation(going).until(/\n/);
}

/** Makes a root filesystem that contains one static program. */
export async function makeRootfs(directory: string, busybox: string): Promise<void> {
  await Promise.all(
    ["bin", "dev", "etc", "proc", "sys", "tmp"].map((name) => mkdir(join(directory, name), { recursive: true })),
  );
  await cp(busybox, join(directory, "bin/busybox"));
}
