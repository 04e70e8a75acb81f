// @module-tag gvisor
import { createHash } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxImport } from "@atoll/engine";
import { SandboxId, TemplateName, type LayerPart } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { packSandbox, readPackage, withCopy } from "../support/sandbox-package.ts";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

let host: TestEngine;
const features: string[] = ["fpu", "sse2"];
let id: SandboxId;
/** A package of a sandbox that this engine no longer has. */
let packed: string;
beforeAll(async () => {
  host = await openTestEngine({ readCpuFlags: async () => features });
  const sandbox = await host.engine.create({});
  ({ id } = sandbox);
  await sandbox.files.write("/home/user/note", "kept as it was");
  await mkdir(sandbox.ownerDir);
  await writeFile(join(sandbox.ownerDir, "facts"), "known");
  await host.engine.pause(id);
  packed = await packSandbox(host.engine, id);
  await host.engine.release(id);
});
afterAll(async () => {
  await host.dispose();
  await rm(packed, { recursive: true, force: true });
});

async function flipByte(path: string): Promise<void> {
  const bytes = await readFile(path);
  const at = bytes.byteLength >> 1;
  bytes[at] = (bytes[at] ?? 0) ^ 0xff;
  await writeFile(path, bytes);
}

function firstLayer({ layers }: SandboxImport): { part: LayerPart; archive: string } {
  const [layer] = layers;
  if (layer === undefined) throw new Error("The package has no layer");
  return layer;
}

const image = ({ memoryDir }: SandboxImport): string => join(memoryDir, "checkpoint.img");
const archive = (from: SandboxImport): string => firstLayer(from).archive;
const owner = (from: SandboxImport): string => from.owner ?? "";

/** Replaces the layer's archive, and corrects its size and digest in the manifest. */
async function replaceArchive(from: SandboxImport, bytes: Buffer): Promise<SandboxImport> {
  const layer = firstLayer(from);
  await writeFile(layer.archive, bytes);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const part = { ...layer.part, sizeBytes: bytes.byteLength, sha256 };
  return { ...from, manifest: { ...from.manifest, layers: [part] }, layers: [{ ...layer, part }] };
}

type Damage = (from: SandboxImport) => Promise<SandboxImport | void>;
/** The ways in which received data can be damaged, and the text of the error for each. */
const damages: [what: string, named: RegExp, damage: Damage][] = [
  ["memory with another byte", /checkpoint\.img: its contents/, (from) => flipByte(image(from))],
  ["memory that is cut off", /checkpoint\.img: it has 1000 bytes/, (from) => truncate(image(from), 1000)],
  ["memory that is missing", /checkpoint\.img: it is missing/, (from) => rm(image(from))],
  ["no memory at all", /memory: it is missing/, ({ memoryDir }) => rm(memoryDir, { recursive: true })],
  [
    "a foreign file with the memory",
    /other\.img: it is not part/,
    ({ memoryDir }) => writeFile(join(memoryDir, "other.img"), ""),
  ],
  ["a layer with another byte", /layer .*: its contents/, (from) => flipByte(archive(from))],
  ["a layer that is cut off", /layer .*: it has 100 bytes/, (from) => truncate(archive(from), 100)],
  ["a layer that is missing", /layer .*: it is missing/, (from) => rm(archive(from))],
  ["a layer that is not given", /layer .*: it is missing/, async (from) => ({ ...from, layers: [] })],
  ["a layer that is no archive", /layer .*: it is no archive/, (from) => replaceArchive(from, Buffer.alloc(100))],
  [
    "a layer of too few trees",
    /layer .*: it has too few trees/,
    (from) => replaceArchive(from, Buffer.from("atollpk1Z")),
  ],
  [
    "a layer of another sandbox",
    /layer .* is not in its manifest/,
    async (from) => ({
      ...from,
      layers: [{ ...firstLayer(from), part: { ...firstLayer(from).part, sha256: "0".repeat(64) } }],
    }),
  ],
  ["the owner's files with another byte", /owner: its contents/, (from) => flipByte(owner(from))],
  ["the owner's files, missing", /owner: it is missing/, (from) => rm(owner(from))],
  ["the owner's files, not given", /owner: it is missing/, async (from) => ({ ...from, owner: undefined })],
  ["a layer in place of the owner's files", /owner: it has/, (from) => copyFile(archive(from), owner(from))],
  [
    "the record of another sandbox",
    /manifest belongs to sandbox/,
    async (from) => ({ ...from, record: { ...from.record, id: SandboxId.parse("a".repeat(20)) } }),
  ],
  [
    "another version of runsc",
    /saved by runsc release-1, and this machine has/,
    async (from) => ({
      ...from,
      manifest: { ...from.manifest, runtime: { ...from.manifest.runtime, version: "release-1" } },
    }),
  ],
  [
    "a platform that this runsc does not have",
    /needs gVisor's platform kvm/,
    async (from) => ({
      ...from,
      manifest: { ...from.manifest, runtime: { ...from.manifest.runtime, platform: "kvm" } },
    }),
  ],
  [
    "a guest that is not here",
    /it has no guest 0123456789abcdef/,
    async (from) => ({ ...from, manifest: { ...from.manifest, guest: "0123456789abcdef" } }),
  ],
  [
    "a processor that lacks something",
    /its processor lacks avx9000/,
    async (from) => ({ ...from, manifest: { ...from.manifest, cpuFeatures: ["avx9000"] } }),
  ],
  [
    "a template that is not here",
    /it has no template nowhere/,
    async (from) => ({
      ...from,
      record: { ...from.record, template: TemplateName.parse("nowhere") },
      manifest: { ...from.manifest, template: TemplateName.parse("nowhere") },
    }),
  ],
];

async function expectNothingLeft(): Promise<void> {
  expect(host.engine.list()).toEqual([]);
  expect(await readdir(join(host.dataDir, "sandboxes"))).toEqual([]);
  expect(await readdir(join(host.dataDir, "layers"))).toEqual([]);
}

describe("received data is verified before it becomes a sandbox", () => {
  test.for(damages)("%s is refused by name, and nothing is left", async ([, named, damage]) => {
    await withCopy(packed, async (copy) => {
      const from = await readPackage(copy);
      const damaged = (await damage(from)) ?? from;
      await expect(host.engine.importSandbox(damaged)).rejects.toThrow(named);
    });
    await expectNothingLeft();
  });

  test("an aborted import leaves nothing", async () => {
    const signal = AbortSignal.abort(new Error("aborted"));
    await withCopy(packed, async (copy) => {
      await expect(host.engine.importSandbox(await readPackage(copy), { signal })).rejects.toThrow("aborted");
    });
    await expectNothingLeft();
  });
});

test("a complete package is imported once, and the sandbox can be packed only while it is undamaged", async () => {
  await withCopy(packed, async (copy) => {
    const from = await readPackage(copy);
    const { part } = firstLayer(from);
    const twice = await Promise.allSettled([
      host.engine.importSandbox(from),
      withCopy(packed, async (other) => host.engine.importSandbox(await readPackage(other))),
    ]);
    expect(twice.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
    expect(twice.find(({ status }) => status === "rejected")).toMatchObject({ reason: { code: "already_exists" } });
    const kept = await makeDataDir();
    expect(await host.engine.unpackOwner(id, 1, kept, { signal: AbortSignal.timeout(60_000) })).toBe(true);
    expect(await readFile(join(kept, "facts"), "utf8")).toBe("known");
    await rm(kept, { recursive: true });
    expect(await host.engine.hasLayer(part)).toBe(true);
    await writeFile(join(host.dataDir, "layers", part.id, "trees/0/upper/home/user/note"), "another text");
    expect(await host.engine.hasLayer(part)).toBe(false);
    await expect(
      host.engine.packLayer(part, join(copy, "layer"), { signal: AbortSignal.timeout(60_000) }),
    ).rejects.toMatchObject({ code: "unrestorable" });
    await expect(stat(join(copy, "layer"))).rejects.toThrow("ENOENT");
    await host.engine.release(id);
  });
  await expectNothingLeft();
  await withCopy(packed, async (copy) => {
    const sandbox = await host.engine.importSandbox(await readPackage(copy));
    await host.engine.resume(id);
    expect((await runIn(sandbox, "cat note")).output).toBe("kept as it was");
    await sandbox.kill();
  });
});

test("a malicious archive with a matching manifest is refused", async () => {
  // The archive has a link that leads out, and a file whose path goes through that link.
  const link = Buffer.concat([Buffer.from("L\x02up\x03\0\0\0../"), Buffer.alloc(22)]);
  const bytes = Buffer.concat([Buffer.from("atollpk1T"), link, Buffer.from("F\x05up/me")]);
  await withCopy(packed, async (copy) => {
    const from = await replaceArchive(await readPackage(copy), bytes);
    await expect(host.engine.importSandbox(from)).rejects.toThrow(/layer .*: "up\/me" of 5 bytes is no name/);
  });
  await expectNothingLeft();
});
