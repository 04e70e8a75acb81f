// @module-tag gvisor
import { access, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxEventMessage } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { transferSandbox } from "../support/sandbox-package.ts";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

let here: TestEngine;
let there: TestEngine;
beforeAll(async () => {
  [here, there] = await Promise.all([openTestEngine(), openTestEngine()]);
});
afterAll(() => Promise.all([here.dispose(), there.dispose()]));

const counter = "i=0; while read word; do i=$((i+1)); echo $word >>words; echo $i; done";

async function leftOf({ dataDir }: TestEngine): Promise<string[]> {
  const [sandboxes, layers] = await Promise.all(
    ["sandboxes", "layers"].map((name) => readdir(join(dataDir, name)).catch(() => [])),
  );
  return [...(sandboxes ?? []), ...(layers ?? [])];
}

test("a sandbox moves to another machine and back with its processes, files and the owner's files", async () => {
  const events: SandboxEventMessage[] = [];
  here.engine.events.listen((event) => events.push(event));
  const sandbox = await here.engine.create({ labels: { goes: "far" } });
  const counting = await sandbox.spawn({ argv: ["bash", "-c", counter], stdin: true }, { keep: true });
  await mkdir(join(sandbox.ownerDir, "commands"), { recursive: true });
  await writeFile(join(sandbox.ownerDir, "commands", "log"), "1\n2\n");
  await counting.writeStdin("one\ntwo\n");
  await new Conversation(counting).until(/2\n/);
  await runIn(sandbox, "mkfifo pipe; ln words again; truncate -s 20M sparse; rm -rf .profile; mkdir -m 0 closed");
  await here.engine.pause(sandbox.id);
  await here.engine.resume(sandbox.id);
  await sandbox.files.write("/home/user/second", "of the second layer");
  await here.engine.pause(sandbox.id);
  const shown = (host: TestEngine, command: string): Promise<string> =>
    runIn(host.engine.get(sandbox.id), command).then(({ output }) => output);

  const { sandbox: moved, layers } = await transferSandbox(here.engine, there.engine, sandbox.id);
  expect(layers).toEqual([`${sandbox.id}-2`, `${sandbox.id}-1`]);
  expect(await leftOf(here)).toEqual([]);
  expect(events.at(-1)).toMatchObject({ type: "state", from: "paused", to: "released", sandboxId: sandbox.id });
  expect(() => here.engine.get(sandbox.id)).toThrow("Cannot find sandbox");
  await here.engine.release(sandbox.id);
  expect(moved.record).toMatchObject({ id: sandbox.id, state: "paused", checkpoint: 2, labels: { goes: "far" } });
  expect(await readFile(join(moved.ownerDir, "commands", "log"), "utf8")).toBe("1\n2\n");

  await there.engine.resume(sandbox.id);
  const going = moved.attach(counting.streamId, { stdoutBytes: 4, stderrBytes: 0 });
  await going.writeStdin("three\n");
  expect(await new Conversation(going).until(/\n/)).toBe("3\n");
  expect(
    await shown(there, "cat words second; stat -c '%F %a' pipe closed; stat -c '%h' again; stat -c '%s' sparse"),
  ).toBe("one\ntwo\nthree\nof the second layerfifo 644\ndirectory 0\n2\n20971520\n");
  expect(await shown(there, "ls -A .profile")).toContain("No such file");

  await there.engine.pause(sandbox.id, { checkpoint: 7 });
  await expect(there.engine.pause(sandbox.id, { checkpoint: 7 })).rejects.toThrow("it is paused");
  const { sandbox: back } = await transferSandbox(there.engine, here.engine, sandbox.id);
  expect(await leftOf(there)).toEqual([]);
  await here.engine.resume(sandbox.id);
  const again = back.attach(counting.streamId, { stdoutBytes: 6, stderrBytes: 0 });
  await again.writeStdin("four\n");
  expect(await new Conversation(again).until(/\n/)).toBe("4\n");
  expect(await shown(here, "cat words")).toBe("one\ntwo\nthree\nfour\n");
  await expect(here.engine.pause(sandbox.id, { checkpoint: 7 })).rejects.toThrow("the next one is 8");
  expect(back.state).toBe("running");
  await back.kill();
  expect(await leftOf(here)).toEqual([]);
});

test("layers that several sandboxes share are copied once, and stay until the last of them is removed", async () => {
  const parent = await here.engine.create({});
  await parent.files.write("/home/user/shared", "of all");
  await here.engine.pause(parent.id);
  const { sandboxes } = await here.engine.fork(parent.id, { count: 3 });
  for (const [index, copy] of sandboxes.entries()) {
    await copy.files.write("/home/user/own", `of ${index}`);
    await here.engine.pause(copy.id);
  }
  const [first, second, third] = sandboxes;
  if (first === undefined || second === undefined || third === undefined)
    throw new Error("The fork should have three copies");
  expect((await transferSandbox(here.engine, there.engine, first.id)).layers).toEqual([
    `${first.id}-2`,
    `${parent.id}-1`,
  ]);
  expect((await transferSandbox(here.engine, there.engine, second.id)).layers).toEqual([`${second.id}-2`]);
  await there.engine.release(first.id);
  // A layer that was damaged since then is copied again, for all sandboxes.
  await writeFile(join(there.dataDir, "layers", `${parent.id}-1`, "trees/0/upper/home/user/shared"), "damaged");
  expect((await transferSandbox(here.engine, there.engine, third.id)).layers).toEqual([
    `${third.id}-2`,
    `${parent.id}-1`,
  ]);
  await there.engine.release(third.id);
  await there.engine.resume(second.id);
  expect((await runIn(there.engine.get(second.id), "cat shared own")).output).toBe("of allof 1");
  expect((await readdir(join(there.dataDir, "layers"))).toSorted()).toEqual(
    [`${parent.id}-1`, `${second.id}-2`].toSorted(),
  );
  // A running sandbox can be released, too.
  await there.engine.release(second.id);
  expect(await leftOf(there)).toEqual([]);
  await access(join(here.dataDir, "layers", `${parent.id}-1`));
  await here.engine.kill(parent.id);
});
