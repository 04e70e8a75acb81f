// @module-tag gvisor
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

let host: TestEngine;
let atStep: (step: string) => void = () => undefined;
beforeAll(async () => {
  host = await openTestEngine({ atStep: (step) => atStep(step) });
});
afterEach(() => {
  atStep = () => undefined;
});
afterAll(() => host.dispose());

/** Holds a deleted file open, and copies each line of its input into that file and to its output. */
const holder = "exec 7<>gone; rm gone; echo held; while read word; do echo $word >&7; echo $word; done";

test("a pause with an open deleted file is refused with the file and its process, and nothing is lost", async () => {
  const sandbox = await host.engine.create({});
  const holding = await sandbox.spawn({ argv: ["bash", "-c", holder], stdin: true });
  const talk = new Conversation(holding);
  await talk.until(/held\n/);
  const error: unknown = await host.engine.pause(sandbox.id).catch((reason: unknown) => reason);
  if (!isSandboxError(error, "unsaveable")) throw error;
  expect(error.status).toBe(409);
  expect(error.details).toMatchObject({
    files: ["/home/user/gone"],
    processes: [{ pid: holding.pid, streamId: holding.streamId }],
  });
  expect(sandbox.state).toBe("running");
  expect(await host.engine.checkpoints(sandbox.id)).toEqual([]);
  await holding.writeStdin("still here\n");
  expect(await talk.until(/\n/)).toBe("still here\n");
  await sandbox.kill();
});

test("force ends exactly the processes that prevent the pause, and reports them", async () => {
  const sandbox = await host.engine.create({});
  const holding = await sandbox.spawn({ argv: ["bash", "-c", holder], stdin: true });
  await new Conversation(holding).until(/held\n/);
  // A new file with that name, and a file whose real name ends in "(deleted)", open and mapped, can be saved.
  const scripts = ["exec cat", "exec cat 7<>gone", "cp /bin/cat 'gone (deleted)'; exec './gone (deleted)'"];
  const others = await Promise.all(
    scripts.map(async (script) => {
      const process = await sandbox.spawn({ argv: ["bash", "-c", script], stdin: true });
      const talk = new Conversation(process);
      const repeats = async (word: string): Promise<void> => {
        await process.writeStdin(`${word}\n`);
        expect(await talk.until(/\n/)).toBe(`${word}\n`);
      };
      await repeats("here");
      return repeats;
    }),
  );
  const { ended } = await host.engine.pause(sandbox.id, { force: true });
  expect(ended.map(({ pid }) => pid)).toEqual([holding.pid]);
  await host.engine.resume(sandbox.id);
  expect((await holding.wait()).signal).toBe("SIGKILL");
  for (const repeats of others) await repeats("alive");
  await sandbox.kill();
});

test("force works without a shell in the sandbox, and events report which processes it ended", async () => {
  const sandbox = await host.engine.create({});
  const holding = await sandbox.spawn({ argv: ["bash", "-c", holder], stdin: true });
  await new Conversation(holding).until(/held\n/);
  await runIn(sandbox, "echo 'root:x:65534:65534::/:/bin/false' >/etc/passwd; rm -f /bin/sh /usr/bin/sh", {
    user: "0:0",
  });
  const reported: unknown[] = [];
  const stop = host.engine.events.listen((event) => {
    if (event.type === "state" && event.sandboxId === sandbox.id && event.ended !== undefined) reported.push(event);
  });
  const { ended } = await host.engine.pause(sandbox.id, { force: true });
  stop();
  expect(ended.map(({ pid }) => pid)).toEqual([holding.pid]);
  expect(reported).toMatchObject([{ to: "paused", ended: [{ pid: holding.pid }] }]);
  await sandbox.kill();
});

test("a pause that fails after it has ended processes reports them", async () => {
  const sandbox = await host.engine.create({});
  const holding = await sandbox.spawn({ argv: ["bash", "-c", holder], stdin: true });
  await new Conversation(holding).until(/held\n/);
  const reported: unknown[] = [];
  const stop = host.engine.events.listen((event) => {
    if (event.type === "state" && event.sandboxId === sandbox.id && event.ended !== undefined) reported.push(event);
  });
  atStep = (step) => {
    if (step === "pause: sealed") throw new SandboxError("no_space", "Cannot go on: no space left on device");
  };
  const ended = [{ pid: holding.pid, command: expect.stringContaining("exec 7<>gone") }];
  await expect(host.engine.pause(sandbox.id, { force: true })).rejects.toMatchObject({
    code: "no_space",
    details: { ended },
  });
  stop();
  expect(reported).toMatchObject([{ to: "running", ended }]);
  expect(sandbox.state).toBe("running");
  await sandbox.kill();
});

test("a refused pause continues all processes except those that were stopped before", async () => {
  const sandbox = await host.engine.create({});
  const holding = await sandbox.spawn({ argv: ["bash", "-c", holder], stdin: true });
  const talk = new Conversation(holding);
  await talk.until(/held\n/);
  const stopped = await sandbox.spawn({ argv: ["bash", "-c", "kill -STOP $$; echo woken"] });
  await runIn(sandbox, `until grep -q ') T ' /proc/${stopped.pid}/stat; do :; done`);
  for (let round = 1; round <= 3; round += 1) {
    await expect(host.engine.pause(sandbox.id)).rejects.toMatchObject({ code: "unsaveable" });
    await holding.writeStdin(`round ${round}\n`);
    expect(await talk.until(/\n/)).toBe(`round ${round}\n`);
  }
  await runIn(sandbox, `kill -CONT ${stopped.pid}`);
  await new Conversation(stopped).until(/woken\n/);
  await sandbox.kill();
});

test("a pause with a deleted working directory is refused with its name", async () => {
  const sandbox = await host.engine.create({});
  const command = "mkdir work; cd work; rmdir ../work; echo there; exec sleep 1000";
  const working = await sandbox.spawn({ argv: ["bash", "-c", command] });
  await new Conversation(working).until(/there\n/);
  const error: unknown = await host.engine.pause(sandbox.id).catch((reason: unknown) => reason);
  if (!(error instanceof SandboxError)) throw error;
  expect(error.details).toMatchObject({ files: ["/home/user/work"], processes: [{ pid: working.pid }] });
  expect(sandbox.state).toBe("running");
  await sandbox.kill();
});

test("a file whose name only looks deleted does not prevent a pause", async () => {
  const sandbox = await host.engine.create({});
  const command = "exec 7>'x (deleted)'; echo open; read word; echo $word >&7; echo written";
  const writing = await sandbox.spawn({ argv: ["bash", "-c", command], stdin: true });
  const talk = new Conversation(writing);
  await talk.until(/open\n/);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await writing.writeStdin("kept\n");
  await talk.until(/written\n/);
  expect((await runIn(sandbox, "cat 'x (deleted)'")).output).toBe("kept\n");
  await sandbox.kill();
});

test("force ends a process with a deleted file whose name is not UTF-8", async () => {
  const sandbox = await host.engine.create({});
  const command = "exec 7<>$'gone\\xff'; rm gone*; echo held; exec sleep 1000";
  const holding = await sandbox.spawn({ argv: ["bash", "-c", command] });
  await new Conversation(holding).until(/held\n/);
  const { ended } = await host.engine.pause(sandbox.id, { force: true });
  expect(ended.map(({ pid }) => pid)).toEqual([holding.pid]);
  await sandbox.kill();
});

test("an open file with a path beyond the limit is saved, and refused once it is deleted", async () => {
  const sandbox = await host.engine.create({});
  const script = `
import os
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
file = open("file", "w+")
print("open", flush=True)
print(input(), file=file, flush=True)
file.seek(0)
print(file.read(), end="", flush=True)
os.unlink("file")
print("deleted", flush=True)
input()
`;
  const holding = await sandbox.spawn({ argv: ["python3", "-c", script], stdin: true });
  const talk = new Conversation(holding);
  await talk.until(/open\n/);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await holding.writeStdin("kept\n");
  expect(await talk.until(/deleted\n/)).toBe("kept\ndeleted\n");
  await expect(host.engine.pause(sandbox.id)).rejects.toMatchObject({
    code: "unsaveable",
    details: { files: ["(a path of more than 4096 bytes)"] },
  });
  expect(sandbox.state).toBe("running");
  await sandbox.kill();
});

test("deleted files in memory are saved", async () => {
  const sandbox = await host.engine.create({});
  const command = "exec 7<>/tmp/gone; rm /tmp/gone; echo text >&7; echo held; read word; cat /proc/self/fd/7";
  const holding = await sandbox.spawn({ argv: ["bash", "-c", command], stdin: true });
  const talk = new Conversation(holding);
  await talk.until(/held\n/);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await holding.writeStdin("go\n");
  expect(await talk.until(/\n/)).toBe("text\n");
  await sandbox.kill();
});

test("a driver that cannot save memory refuses a pause, and its sandbox runs on", async () => {
  const sandbox = await host.engine.create({ driver: "local" });
  const error: unknown = await host.engine.pause(sandbox.id).catch((reason: unknown) => reason);
  expect(isSandboxError(error, "unsupported")).toBe(true);
  expect(sandbox.state).toBe("running");
  await sandbox.kill();
});
