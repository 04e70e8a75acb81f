// @module-tag gvisor
import type { Sandbox } from "@atoll/engine";
import { SandboxError, type SandboxEventMessage } from "@atoll/protocol";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { patience } from "../support/patience.ts";
import { Conversation, finish, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

const MiB = 1024 * 1024;

/** Real gVisor sandboxes that misbehave, each beside another sandbox that must not be affected. */
describe("a sandbox that takes too much", () => {
  let host: TestEngine;
  let neighbour: Sandbox;
  const events: SandboxEventMessage[] = [];

  beforeAll(async () => {
    host = await openTestEngine();
    host.engine.events.listen((event) => events.push(event));
    neighbour = await host.engine.create();
  });
  beforeEach(() => {
    events.length = 0;
  });
  afterAll(async () => {
    await host.dispose();
  });

  const expectNeighbourUnharmed = async (): Promise<void> => {
    expect(neighbour.state).toBe("running");
    expect((await runIn(neighbour, "echo fine")).output).toBe("fine\n");
  };

  test("memory: a process killed at the limit reports it, and its sandbox goes on or ends", async () => {
    const sandbox = await host.engine.create({ limits: { memoryBytes: 128 * MiB } });
    const hog = "import mmap\nm=mmap.mmap(-1,1<<30)\nfor i in range(0,1<<30,4096): m[i]=1";
    const end = await runIn(sandbox, ["python3", "-c", hog]).catch((error: unknown) => error);
    const isGone = end instanceof SandboxError;
    expect(end).toMatchObject(
      isGone ? { code: "sandbox_ended", details: { outOfMemory: true } } : { outOfMemory: true },
    );
    if (!isGone) expect(events).toContainEqual(expect.objectContaining({ type: "limit.hit", limit: "memory" }));
    await expectNeighbourUnharmed();
    await sandbox.kill();
  });

  test("memory: when the runtime itself is killed, waiting calls fail with that reason", async () => {
    const sandbox = await host.engine.create({ limits: { memoryBytes: 128 * MiB } });
    const hog = runIn(sandbox, "head -c 400M /dev/zero | tail -c 300M | wc -c");
    await expect(hog).rejects.toMatchObject({ code: "sandbox_ended", details: { outOfMemory: true } });
    await expect
      .poll(() => sandbox.record)
      .toMatchObject({ state: "failed", reason: { kind: "memory" }, survives: ["files"] });
    await expect(sandbox.spawn({ argv: ["true"] })).rejects.toMatchObject({ code: "invalid_state" });
    await expectNeighbourUnharmed();
    await sandbox.kill();
  });

  test.for(["user", "root"])("processes: a fork bomb of %s gets EAGAIN, and the sandbox stays usable", async (user) => {
    const sandbox = await host.engine.create({ limits: { processes: 40 } });
    const bomb = [
      "import os,time,sys",
      "n=0",
      "try:",
      "  while n<500:",
      "    if os.fork()==0: time.sleep(600); os._exit(0)",
      "    n+=1",
      "except OSError as e: print(n, e.errno, flush=True)",
      "else: print(n, 'unlimited', flush=True)",
      "time.sleep(600)",
    ].join("\n");
    const process = await sandbox.spawn({ argv: ["python3", "-c", bomb], user });
    const said = await new Conversation(process).until(/\n/);
    const [count, errno] = said.trim().split(" ");
    expect(errno).toBe("11");
    expect(Number(count)).toBeLessThan(41);
    await expect
      .poll(() => events)
      .toContainEqual(expect.objectContaining({ sandboxId: sandbox.id, type: "limit.hit", limit: "processes" }));
    await expectNeighbourUnharmed();
    expect((await sandbox.files.list("/", { user })).length).toBeGreaterThan(3);
    await process.kill("SIGKILL");
    await process.wait();
    expect((await runIn(sandbox, "echo again", { user })).output).toBe("again\n");
    await sandbox.kill();
  });

  test("processes: the reported count includes threads, as the limit does", async () => {
    const sandbox = await host.engine.create({ limits: { processes: 40 } });
    const bomb = [
      "import threading,time",
      "n=0",
      "try:",
      "  while n<500: threading.Thread(target=time.sleep,args=(600,)).start(); n+=1",
      "except RuntimeError: print(n, flush=True)",
    ].join("\n");
    const process = await sandbox.spawn({ argv: ["python3", "-c", bomb] });
    const threads = Number(await new Conversation(process).until(/\n/));
    expect(threads).toBeLessThan(41);
    expect((await sandbox.usage()).processes).toBe(threads + 1);
    await expect
      .poll(() => events)
      .toContainEqual(
        expect.objectContaining({ sandboxId: sandbox.id, type: "limit.hit", limit: "processes", allowed: 40 }),
      );
    await sandbox.kill();
  });

  test.for(["user", "root"])(
    "disk: %s cannot grow beyond the limit, gets the reason, and can go on after cleaning up",
    async (user) => {
      const sandbox = await host.engine.create({ limits: { diskBytes: 32 * MiB } });
      const home = user === "root" ? "/root" : "/home/user";
      const filler = await sandbox.spawn({
        argv: [
          "bash",
          "-c",
          "i=0; while head -c 1M /dev/zero > fill$i; do i=$((i+1)); sleep 0.005; done; echo stopped $?",
        ],
        user,
      });
      const { stdout, stderr } = await finish(filler);
      expect(stderr.toString()).toMatch(/File size limit exceeded|File too large/);
      expect(stdout.toString()).toMatch(/^stopped \d+\n$/);
      expect(events).toContainEqual(expect.objectContaining({ type: "limit.hit", limit: "disk" }));
      const { diskBytes } = await sandbox.usage();
      expect(diskBytes).toBeLessThan(32 * MiB * 1.25 + 64 * MiB);
      await expect(sandbox.files.write(`${home}/more`, Buffer.alloc(4096), { user })).rejects.toMatchObject({
        code: "no_space",
      });
      await runIn(sandbox, "rm -f fill*", { user });
      await expect
        .poll(() => events.some((event) => event.type === "limit.eased" && event.limit === "disk"))
        .toBe(true);
      await sandbox.files.write(`${home}/more`, Buffer.alloc(4096), { user });
      await expectNeighbourUnharmed();
      await sandbox.kill();
    },
  );

  test.for([
    {
      what: "files in a directory whose name is not UTF-8",
      script: "mkdir $'\\xff' && head -c 9M /dev/zero > $'\\xff/\\xfe'",
    },
    { what: "files without a byte", script: "for i in $(seq 3000); do : > empty$i; done" },
  ])("disk: $what count", async ({ script }) => {
    const sandbox = await host.engine.create({ limits: { diskBytes: 8 * MiB, fileBytes: 16 * MiB } });
    await runIn(sandbox, script);
    await expect
      .poll(() => events)
      .toContainEqual(expect.objectContaining({ sandboxId: sandbox.id, type: "limit.hit", limit: "disk" }));
    expect((await sandbox.usage()).diskBytes).toBeGreaterThan(8 * MiB);
    await sandbox.kill();
  });

  test("disk: a sandbox that one server stopped goes on with the next one when there is room", async () => {
    const first = await openTestEngine();
    const sandbox = await first.engine.create({ limits: { diskBytes: 16 * MiB } });
    await runIn(sandbox, "i=0; while head -c 1M /dev/zero > fill$i; do i=$((i+1)); sleep 0.005; done");
    await first.engine.close();
    const second = await openTestEngine({ dataDir: first.dataDir });
    const same = second.engine.get(sandbox.id);
    await runIn(same, "rm -f fill*");
    const write = async (): Promise<number | null> => (await runIn(same, "head -c 4096 /dev/zero > more")).exitCode;
    await expect.poll(write).toBe(0);
    await second.dispose();
  });

  test("file size: no file grows beyond the limit", async () => {
    const sandbox = await host.engine.create({ limits: { fileBytes: 1 * MiB } });
    const { output } = await runIn(sandbox, "trap '' XFSZ; head -c 3M /dev/zero > big; stat -c %s big");
    expect(output).toMatch(new RegExp(`${MiB}\n$`));
    await sandbox.kill();
  });

  test("/tmp: it is in memory, and has a limit", async () => {
    const sandbox = await host.engine.create({ limits: { tmpBytes: 2 * MiB } });
    const { output } = await runIn(sandbox, "head -c 5M /dev/zero > /tmp/x; stat -c %s /tmp/x");
    expect(output).toMatch(/No space left/);
    await sandbox.kill();
  });

  test("CPU: a busy sandbox gets only its share, and another one still answers", async () => {
    const sandbox = await host.engine.create({ limits: { cpus: 0.25 } });
    const hogs = await Promise.all([1, 2, 3].map(() => sandbox.spawn({ argv: ["sh", "-c", "while :; do :; done"] })));
    const first = await sandbox.usage();
    await expect.poll(async () => (await sandbox.usage()).readAtMs - first.readAtMs).toBeGreaterThan(2_000);
    const second = await sandbox.usage();
    expect((second.cpuMs - first.cpuMs) / (second.readAtMs - first.readAtMs)).toBeLessThan(0.5);
    await expectNeighbourUnharmed();
    for (const hog of hogs) await hog.kill("SIGKILL");
    await sandbox.kill();
  });

  test("CPU: events report that a sandbox waits for CPU time, and that it has enough again", async () => {
    // The limit is so low that even a busy machine has more CPU time to give, and high enough for a slow one to start
    // it.
    const cpus = Math.min(0.05 * patience, 0.5);
    const sandbox = await host.engine.create({ limits: { cpus } });
    const hog = await sandbox.spawn({ argv: ["sh", "-c", "while :; do :; done"] });
    const last = (type: SandboxEventMessage["type"]): unknown =>
      events.find((event) => event.type === type && "limit" in event && event.limit === "cpu");
    await expect.poll(() => last("limit.hit")).toMatchObject({ sandboxId: sandbox.id, allowed: cpus });
    await hog.kill("SIGKILL");
    await expect.poll(() => last("limit.eased")).toMatchObject({ sandboxId: sandbox.id });
    await sandbox.kill();
  });

  test("a process whose endless output is not read waits, and the rest of the sandbox does not", async () => {
    const sandbox = await host.engine.create();
    const endless = await Promise.all([1, 2, 3, 4].map(() => sandbox.spawn({ argv: ["yes"] })));
    expect((await runIn(sandbox, "echo still here")).output).toBe("still here\n");
    await expectNeighbourUnharmed();
    expect((await sandbox.usage()).memoryBytes).toBeLessThan(256 * MiB);
    for (const process of endless) {
      await process.kill("SIGKILL");
      process.discardOutput();
      expect((await process.wait()).signal).toBe("SIGKILL");
    }
    await sandbox.kill();
  });

  test("time: the sandbox is killed at the end of its lifetime, and the reason is reported", async () => {
    const sandbox = await host.engine.create({ limits: { lifetimeMs: 1_500 } });
    await expect.poll(() => sandbox.state).toBe("killed");
    expect(sandbox.record).toMatchObject({ reason: { kind: "lifetime" } });
    expect(events).toContainEqual(expect.objectContaining({ type: "limit.hit", limit: "lifetime" }));
  });

  test("usage is reported in numbers, and a limit that comes near is reported before it is reached", async () => {
    const sandbox = await host.engine.create({ limits: { diskBytes: 20 * MiB } });
    await sandbox.files.write("/home/user/file", Buffer.alloc(19 * MiB));
    const usage = await sandbox.usage();
    expect(usage.diskBytes).toBeGreaterThan(18 * MiB);
    expect(usage.memoryBytes).toBeGreaterThan(1 * MiB);
    expect(usage.cpuMs).toBeGreaterThan(0);
    await expect.poll(() => events.some(({ type }) => type === "limit.near")).toBe(true);
    await sandbox.kill();
  });
});
