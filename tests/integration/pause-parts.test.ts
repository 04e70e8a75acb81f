// @module-tag gvisor
import {
  appendFile,
  chmod,
  copyFile,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { Engine } from "@atoll/engine";
import { CheckpointManifest, isSandboxError, type SandboxId } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

let host: TestEngine;
let features: string[] = ["fpu", "sse2"];
beforeAll(async () => {
  host = await openTestEngine({ readCpuFlags: async () => features });
});
afterAll(() => host.dispose());

interface Paused {
  id: SandboxId;
  image: string;
  manifest: string;
  /** The path of a file of the sandbox, in its layer. */
  note: string;
  layer: string;
}

async function makePaused(): Promise<Paused> {
  const sandbox = await host.engine.create({});
  await sandbox.files.write("/home/user/note", "kept as it was");
  await host.engine.pause(sandbox.id);
  const checkpoint = join(host.dataDir, "sandboxes", sandbox.id, "checkpoints/1");
  const layer = join(host.dataDir, "layers", `${sandbox.id}-1`);
  return {
    id: sandbox.id,
    image: join(checkpoint, "memory/checkpoint.img"),
    manifest: join(checkpoint, "manifest.json"),
    note: join(layer, "trees/0/upper/home/user/note"),
    layer,
  };
}

async function flipByte(path: string, at: number): Promise<void> {
  const bytes = await readFile(path);
  bytes[at] = (bytes[at] ?? 0) ^ 0xff;
  await writeFile(path, bytes);
}

/** The ways in which saved data can be damaged, and the text of the error for each. */
const damages: [what: string, named: RegExp, damage: (paused: Paused) => Promise<unknown>][] = [
  ["a memory image with another byte", /checkpoint\.img: its contents/, ({ image }) => flipByte(image, 5_000)],
  ["a memory image that is cut off", /checkpoint\.img: it has 1000 bytes/, ({ image }) => truncate(image, 1000)],
  ["a memory image that is longer", /checkpoint\.img: it has/, ({ image }) => appendFile(image, "more")],
  ["a memory image that is missing", /checkpoint\.img: it is missing/, ({ image }) => rm(image)],
  ["a file with another byte, of the same size and time", /layer .* not what was saved/, changeUnseen],
  ["a file that is cut off", /layer .* not what was saved/, ({ note }) => truncate(note, 3)],
  ["a file that is missing", /layer .* not what was saved/, ({ note }) => rm(note)],
  ["an extra file", /layer .* not what was saved/, ({ note }) => writeFile(`${note}2`, "")],
  ["a layer that is missing", /layer .* it is missing/, ({ layer }) => rename(layer, `${layer}.away`)],
  ["a manifest that is no manifest", /manifest\.json: it cannot be read/, ({ manifest }) => writeFile(manifest, "{}")],
  ["a manifest that is missing", /manifest\.json: it is missing/, ({ manifest }) => rm(manifest)],
];

async function changeUnseen({ note }: Paused): Promise<void> {
  const { atime, mtime } = await stat(note);
  await flipByte(note, 2);
  await utimes(note, atime, mtime);
}

async function expectRefusal(id: SandboxId, named: RegExp): Promise<void> {
  const error: unknown = await host.engine.resume(id).catch((reason: unknown) => reason);
  if (!isSandboxError(error, "unrestorable")) throw error;
  expect(error.message).toMatch(named);
  expect(host.engine.get(id).state).toBe("paused");
  expect(await readdir(join(host.dataDir, "sandboxes", id, "run"))).toEqual([]);
}

describe("saved data is verified before anything is started", () => {
  test.for(damages)("%s is refused by name", async ([, named, damage]) => {
    const paused = await makePaused();
    await damage(paused);
    await expectRefusal(paused.id, named);
    await rm(`${paused.layer}.away`, { recursive: true, force: true });
    await host.engine.kill(paused.id);
  });

  test("parts of another sandbox are refused, and the sandbox's own parts are accepted again", async () => {
    const [mine, foreign] = [await makePaused(), await makePaused()];
    await copyFile(mine.image, `${mine.image}.own`);
    await copyFile(foreign.image, mine.image);
    await expectRefusal(mine.id, /checkpoint\.img/);
    await rename(`${mine.image}.own`, mine.image);

    const own = await readFile(mine.manifest);
    await copyFile(foreign.manifest, mine.manifest);
    await expectRefusal(mine.id, /manifest\.json: it belongs to checkpoint 1 of sandbox/);
    await writeFile(mine.manifest, own);

    await host.engine.resume(mine.id);
    expect((await runIn(host.engine.get(mine.id), "cat note")).output).toBe("kept as it was");
    await Promise.all([host.engine.kill(mine.id), host.engine.kill(foreign.id)]);
  });

  test("a resume verifies each byte of a memory image, and not the owner's files beside it", async () => {
    const sandbox = await host.engine.create({});
    const { id, ownerDir } = sandbox;
    await mkdir(ownerDir, { recursive: true });
    await writeFile(join(ownerDir, "kept"), "by its owner");
    const counting = await sandbox.spawn({
      argv: ["bash", "-c", "i=0; while read x; do echo $((i+=1)); done"],
      stdin: true,
    });
    const talk = new Conversation(counting);
    await counting.writeStdin("one\n");
    expect(await talk.until(/\n/)).toBe("1\n");
    await host.engine.pause(id);
    const checkpoint = join(host.dataDir, "sandboxes", id, "checkpoints/1");
    const image = join(checkpoint, "memory/checkpoint.img");
    const { size } = await stat(image);
    for (const at of [0, Math.floor(size / 2), size - 1]) {
      await flipByte(image, at);
      await expectRefusal(id, /checkpoint\.img: its contents/);
      await flipByte(image, at);
    }
    const others = (await readdir(checkpoint)).filter((name) => name !== "memory" && name !== "manifest.json");
    expect(others.toSorted()).toEqual(["needs.json", "outcome", "outcome.stderr", "owner.pack"]);
    for (const name of others) await writeFile(join(checkpoint, name), "damaged");
    // Only a rollback reads the files that the owner kept.
    await expect(host.engine.rollback(id, 1)).rejects.toMatchObject({
      code: "unrestorable",
      details: { part: "owner" },
    });
    await host.engine.resume(id);
    await counting.writeStdin("two\n");
    expect(await talk.until(/\n/)).toBe("2\n");
    await host.engine.kill(id);
  });

  test("untouched files are not read again", async () => {
    const paused = await makePaused();
    const noted = (): Promise<number> => stat(join(paused.layer, "seal.json")).then(({ ino }) => ino);
    // An engine that reads a layer stores what it found.
    const before = await noted();
    await host.engine.resume(paused.id);
    expect(await noted()).toBe(before);
    await host.engine.kill(paused.id);
  });

  test("files that were touched and have the same content are accepted", async () => {
    const paused = await makePaused();
    const { mode } = await stat(paused.note);
    await chmod(paused.note, 0o600);
    await chmod(paused.note, mode);
    await host.engine.resume(paused.id);
    expect((await runIn(host.engine.get(paused.id), "cat note")).output).toBe("kept as it was");
    await host.engine.kill(paused.id);
  });

  test("the files of a checkpoint with a damaged memory image can be used", async () => {
    const paused = await makePaused();
    await truncate(paused.image, 1000);
    await host.engine.resume(paused.id, { memory: false });
    expect((await runIn(host.engine.get(paused.id), "cat note")).output).toBe("kept as it was");
    await host.engine.kill(paused.id);
  });
});

describe("the error for a machine that lacks something names it", () => {
  test("for a CPU feature", async () => {
    const paused = await makePaused();
    features = ["fpu"];
    await expectRefusal(paused.id, /its processor lacks sse2/);
    features = ["fpu", "sse2", "avx"];
    await host.engine.resume(paused.id);
    expect(host.engine.get(paused.id).state).toBe("running");
    await host.engine.kill(paused.id);
  });

  test("and there is none for the same processor under another kernel", async () => {
    // These are names of Linux 6.1; later releases do not report the last two, and a restart may change the others.
    features = ["fpu", "sse2", "constant_tsc", "pti", "tsc_known_freq", "invpcid_single"];
    const paused = await makePaused();
    features = ["fpu", "sse2"];
    const manifest = CheckpointManifest.parse(JSON.parse(await readFile(paused.manifest, "utf8")));
    expect(manifest.cpuFeatures).toEqual(["fpu", "sse2"]);
    await host.engine.resume(paused.id);
    await host.engine.pause(paused.id);
    const next = paused.manifest.replace("checkpoints/1", "checkpoints/2");
    const ofBefore = CheckpointManifest.parse(JSON.parse(await readFile(next, "utf8")));
    await writeFile(next, JSON.stringify({ ...ofBefore, cpuFeatures: ["fpu", "pti", "sse2"] }));
    await host.engine.resume(paused.id);
    expect(host.engine.get(paused.id).state).toBe("running");
    await host.engine.kill(paused.id);
  });

  test("for CPU features that sandboxes may not see and that no machine can hide", async () => {
    const dataDir = await makeDataDir();
    const refused = Engine.open({ dataDir, guestPath: guestBinaryPath(), cpuFeatures: ["fpu", "feature_of_2050"] });
    await expect(refused).rejects.toMatchObject({ code: "unsupported", details: { lacking: ["feature_of_2050"] } });
    await rm(dataDir, { recursive: true });
  });

  test("for the version of runsc, its platform, and the guest", async () => {
    const paused = await makePaused();
    const manifest = CheckpointManifest.parse(JSON.parse(await readFile(paused.manifest, "utf8")));
    const older = { ...manifest, runtime: { ...manifest.runtime, version: "release-20200101.0" } };
    await writeFile(paused.manifest, JSON.stringify(older));
    await expectRefusal(paused.id, /saved by runsc release-20200101\.0, and this machine has/);
    const elsewhere = { ...manifest, runtime: { ...manifest.runtime, platform: "kvm" } };
    await writeFile(paused.manifest, JSON.stringify(elsewhere));
    await expectRefusal(paused.id, /needs gVisor's platform kvm/);
    await writeFile(paused.manifest, JSON.stringify({ ...manifest, guest: "0123456789abcdef01234567" }));
    await expectRefusal(paused.id, /it has no guest 0123456789abcdef01234567/);
    await host.engine.kill(paused.id);
  });
});

test("a sandbox with too many open directories to examine is paused without a list of its pipes", async () => {
  const sandbox = await host.engine.create({});
  const script = `
import os
at = os.open("/home/user", os.O_RDONLY)
for _ in range(15):
    os.mkdir("x" * 250, dir_fd=at)
    at = os.open("x" * 250, os.O_RDONLY, dir_fd=at)
held = []
for n in range(2300):
    os.mkdir(str(n).zfill(200), dir_fd=at)
    held.append(os.open(str(n).zfill(200), os.O_RDONLY, dir_fd=at))
print("held", flush=True)
input()
print(len(held), flush=True)
`;
  const holding = await sandbox.spawn({ argv: ["python3", "-c", script], stdin: true });
  const talk = new Conversation(holding);
  await talk.until(/held\n/);
  const { signal } = new AbortController();
  const saved = host.engine.saveFiles(sandbox.id, join(host.dataDir, "too-many"), { signal });
  await expect(saved).rejects.toMatchObject({ code: "limit_reached" });
  const { checkpoint } = await host.engine.pause(sandbox.id);
  const { manifest } = await host.engine.checkpointFiles(sandbox.id, checkpoint);
  expect(manifest.nodes).toBeUndefined();
  await host.engine.resume(sandbox.id);
  await holding.writeStdin("go\n");
  expect(await talk.until(/\n/)).toBe("2300\n");
  await sandbox.kill();
});
