// @module-tag gvisor
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { CheckpointManifest } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { thorough } from "../../tools/thoroughness.mjs";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

let host: TestEngine;
beforeAll(async () => {
  host = await openTestEngine();
});
afterAll(() => host.dispose());

const MiB = 1024 * 1024;
/** The number of pauses is greater than the maximum depth of a stack. */
const pauses = thorough(11, 30);

test(`${pauses} pauses keep every change between them in a stack of bounded depth`, { timeout: 300_000 }, async () => {
  const { engine } = host;
  const sandbox = await engine.create({});
  const command = "i=0; while read n; do i=$((i+1)); echo $n >>log; echo $i; done";
  const counting = await sandbox.spawn({ argv: ["bash", "-c", command], stdin: true });
  const events = counting[Symbol.asyncIterator]();
  for (let n = 1; n <= pauses; n += 1) {
    await counting.writeStdin(`${n}\n`);
    const { value } = await events.next();
    expect(value?.data.toString()).toBe(`${n}\n`);
    // One file is new, one is removed, one directory is replaced, one path changes its kind, and one comes back.
    await runIn(
      sandbox,
      [
        `echo ${n} >new${n}; rm -f new$((${n} - 2)); rm -rf dir; mkdir dir; echo ${n} >dir/in${n}`,
        `rm -rf kind; if (( ${n} % 2 )); then mkdir kind; echo ${n} >kind/x; else echo ${n} >kind; fi`,
        `rm -f sometimes; (( ${n} % 3 )) || echo ${n} >sometimes`,
      ].join("; "),
    );
    await engine.pause(sandbox.id);
    await engine.resume(sandbox.id);
    if (![2, 5, pauses].includes(n)) continue;
    const log = Array.from({ length: n }, (_, index) => `${index + 1}\n`).join("");
    expect((await runIn(sandbox, "cat log")).output).toBe(log);
    const expected = [`new${n - 1}`, `new${n}`, `dir/in${n}`, n % 2 === 1 ? "kind/x" : "kind"];
    if (n % 3 === 0) expected.push("sometimes");
    const found = (await runIn(sandbox, "find * ! -name log -type f")).output.trim().split("\n");
    expect(found.toSorted()).toEqual(expected.toSorted());
    expect((await runIn(sandbox, "cat kind 2>/dev/null || cat kind/x")).output).toBe(`${n}\n`);
  }
  const checkpoints = await engine.checkpoints(sandbox.id);
  expect(checkpoints.map(({ n }) => n)).toEqual(Array.from({ length: pauses }, (_, index) => index + 1));
  const manifest = await readFile(
    join(host.dataDir, "sandboxes", sandbox.id, `checkpoints/${pauses}/manifest.json`),
    "utf8",
  );
  expect(CheckpointManifest.parse(JSON.parse(manifest)).layers.length).toBeLessThanOrEqual(8);
  await engine.rollback(sandbox.id, 7);
  expect((await runIn(sandbox, "ls; cat log | wc -l")).output).toBe("dir\nkind\nlog\nnew6\nnew7\n7\n");
  await sandbox.kill();
  expect(await readdir(join(host.dataDir, "layers"))).toEqual([]);
});

test("the second pause writes about as much as was changed", async () => {
  const { engine } = host;
  const sandbox = await engine.create({});
  await runIn(sandbox, "head -c 64M /dev/urandom >large");
  await engine.pause(sandbox.id);
  await engine.resume(sandbox.id);
  await runIn(sandbox, "head -c 1M /dev/urandom >small");
  await engine.pause(sandbox.id);
  const [first, second] = await engine.checkpoints(sandbox.id);
  if (first === undefined || second === undefined) throw new Error("There should be two checkpoints");
  const ownBytes = (checkpoint: typeof first): number => checkpoint.sizeBytes - checkpoint.memoryBytes;
  expect(ownBytes(first)).toBeGreaterThan(64 * MiB);
  expect(ownBytes(second)).toBeGreaterThan(1 * MiB);
  expect(ownBytes(second)).toBeLessThan(1.5 * MiB);
  expect(second.filesBytes).toBe(ownBytes(first) + ownBytes(second));
  expect(second.createdAtMs).toBeGreaterThanOrEqual(first.createdAtMs);
  await sandbox.kill();
});

test("the disk quota includes the layers below", async () => {
  const { engine } = host;
  const sandbox = await engine.create({});
  await runIn(sandbox, "head -c 8M /dev/urandom >large");
  await engine.pause(sandbox.id);
  await engine.resume(sandbox.id);
  expect((await sandbox.usage()).diskBytes).toBeGreaterThan(8 * MiB);
  await sandbox.kill();
});

test("pauses without writes between them add nothing to the stack", { timeout: 120_000 }, async () => {
  const { engine } = host;
  const sandbox = await engine.create({});
  const pauseTwice = async (): Promise<number> => {
    for (let round = 0; round < 2; round += 1) {
      await engine.pause(sandbox.id);
      await engine.resume(sandbox.id);
    }
    return (await engine.checkpoints(sandbox.id)).at(-1)?.n ?? 0;
  };
  const depthOf = async (n: number): Promise<number> => {
    const file = join(host.dataDir, "sandboxes", sandbox.id, "checkpoints", String(n), "manifest.json");
    return CheckpointManifest.parse(JSON.parse(await readFile(file, "utf8"))).layers.length;
  };
  expect(await depthOf(await pauseTwice())).toBe(1);
  await runIn(sandbox, "echo kept >file");
  expect(await depthOf(await pauseTwice())).toBe(2);
  await runIn(sandbox, "rm file");
  expect(await depthOf(await pauseTwice())).toBe(3);
  expect(await depthOf(await pauseTwice())).toBe(3);
  await engine.rollback(sandbox.id, 4);
  expect((await runIn(sandbox, "cat file")).output).toBe("kept\n");
  await sandbox.kill();
});

test("the owner, mode and time of the root directories are kept, with memory and without", async () => {
  const { engine } = host;
  const sandbox = await engine.create({});
  const look = async (of: Sandbox): Promise<string> => (await runIn(of, "stat -c '%n %u:%g %a %Y' / /usr")).output;
  const change = "chown 7:8 /; chmod 751 /; chmod 711 /usr; touch -d '2001-02-03 04:05:06 UTC' / /usr";
  await runIn(sandbox, change, { user: "root" });
  const before = await look(sandbox);
  expect(before).toBe("/ 7:8 751 981173106\n/usr 0:0 711 981173106\n");
  await engine.pause(sandbox.id);
  await engine.resume(sandbox.id);
  expect(await look(sandbox)).toBe(before);
  await engine.pause(sandbox.id);
  await engine.resume(sandbox.id, { memory: false });
  expect(await look(sandbox)).toBe(before);
  const archive = join(host.dataDir, "saved");
  const { signal } = new AbortController();
  const { base, trees, sizeBytes, sha256 } = await engine.saveFiles(sandbox.id, archive, { signal });
  const files = { archive: async () => archive, base, trees, sizeBytes, sha256 };
  const copy = await engine.create({}, { files });
  expect(await look(copy)).toBe(before);
  await Promise.all([sandbox, copy].map((one) => one.kill()));
});
