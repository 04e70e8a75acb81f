// @module-tag gvisor
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { deadlineAfter, SandboxId } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CrashingServer } from "../support/crashing-server.ts";
import { patience } from "../support/patience.ts";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";
import { ordinarySlackNs, timerSlacksOf } from "../support/timer-slack.ts";

const idleSlackNs = 250_000_000;

async function untilIdle(dataDir: string, sandbox: { id: string }): Promise<void> {
  await expect.poll(() => timerSlacksOf(dataDir, sandbox), { interval: 100 }).toEqual([idleSlackNs]);
}

/** Tests real gVisor sandboxes, by the timer slack that the host's kernel has for their threads. */
describe("a sandbox that is idle", () => {
  let host: TestEngine;
  let sandbox: Sandbox;

  beforeAll(async () => {
    host = await openTestEngine();
    sandbox = await host.engine.create();
  });
  afterAll(async () => {
    await host.dispose();
  });

  const isIdle = (): Promise<void> => untilIdle(host.dataDir, sandbox);
  const expectPunctual = (): void => expect(timerSlacksOf(host.dataDir, sandbox)).toEqual([ordinarySlackNs]);

  test("has late timers on every thread until a request comes", async () => {
    await isIdle();
    const started = sandbox.spawn({ argv: ["echo", "here"] });
    expectPunctual();
    expect(await new Conversation(await started).toEnd()).toBe("here\n");
    expectPunctual();
    // Routine requests are answered without ending the idle state.
    await isIdle();
    expect((await sandbox.usage()).processes).toBe(0);
    expect(timerSlacksOf(host.dataDir, sandbox)).toEqual([idleSlackNs]);
  });

  test("answers on its ports, and its timers fire, within the promised time", async () => {
    const program = `
      let at = Date.now();
      setInterval(() => {
        require("fs").appendFileSync("late", Date.now() - at - 1500 + "\\n");
        at = Date.now();
      }, 1500);
      require("http").createServer((_, answer) => answer.end("served")).listen(8000, () => console.log("listens"));
    `;
    const server = await sandbox.spawn({ argv: ["node", "-e", program] });
    await new Conversation(server).until(/listens/);
    server.discardOutput();
    await isIdle();
    // The file is read on the host, because any request would end the idle state.
    const file = join(host.dataDir, "sandboxes", sandbox.id, "layers/0/upper/home/user/late");
    const ticks = (): number[] => (existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").map(Number) : []);
    const before = ticks().length;
    await expect.poll(() => ticks().length, { interval: 100 }).toBeGreaterThan(before + 3);
    // Other load on the machine delays some ticks, while the timer slack delays all of them.
    expect(Math.min(...ticks().slice(-3))).toBeLessThanOrEqual(idleSlackNs / 1_000_000 + 50);
    const connection = await sandbox.dial(8000, { signal: deadlineAfter(60_000 * patience) });
    expectPunctual();
    connection.end("GET / HTTP/1.0\r\n\r\n");
    let answer = "";
    for await (const chunk of connection) answer += String(chunk);
    expect(answer).toContain("served");
    await server.kill("SIGKILL");
    await server.wait();
  });

  test("is paused, resumed, forked, saved and killed like any other", async () => {
    const counter = await sandbox.spawn({
      argv: ["bash", "-c", "while read line; do echo $((n += 1)); done"],
      stdin: true,
    });
    const conversation = new Conversation(counter);
    await isIdle();
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id);
    expectPunctual();
    await counter.writeStdin("\n");
    expect(await conversation.until(/\n/)).toBe("1\n");
    await isIdle();
    const { sandboxes: forks } = await host.engine.fork(sandbox.id);
    for (const fork of forks) {
      await untilIdle(host.dataDir, fork);
      expect((await runIn(fork, "echo forked")).output).toBe("forked\n");
    }
    await counter.writeStdin("\n");
    expect(await conversation.until(/\n/)).toBe("2\n");
    await isIdle();
    await sandbox.kill();
    expect(host.engine.list().map(({ id }) => id)).not.toContain(sandbox.id);
  });
});

test("a sandbox whose server has ended has exact timers at once, and late ones with the next server", async () => {
  const dataDir = await makeDataDir();
  const server = new CrashingServer(dataDir, "follow", "gvisor", `${dataDir}.log`, "read go; echo went; exit 7");
  const { sandboxId, streamId } = await server.until((fact) => fact.streamId !== undefined);
  const id = SandboxId.parse(sandboxId);
  const isPunctual = async (): Promise<void> => {
    await expect.poll(() => timerSlacksOf(dataDir, { id }), { interval: 20 }).toEqual([ordinarySlackNs]);
  };
  await untilIdle(dataDir, { id });
  await server.killHard();
  await isPunctual();

  const second = await openTestEngine({ dataDir });
  await untilIdle(dataDir, { id });
  await second.engine.close();
  expect(timerSlacksOf(dataDir, { id })).toEqual([ordinarySlackNs]);

  // The loop runs twice, because the launcher must notice the end of every server.
  const third = new CrashingServer(dataDir, "follow", "gvisor", `${dataDir}.log`, "read go");
  await third.until((fact) => fact.streamId !== undefined);
  await untilIdle(dataDir, { id });
  await third.killHard();
  await isPunctual();

  const last = await openTestEngine({ dataDir, idleTimerSlackMs: 0 });
  try {
    const process = last.engine.get(id).attach(streamId ?? 0, { stdoutBytes: 0, stderrBytes: 0 });
    await process.writeStdin("go\n");
    expect(await new Conversation(process).toEnd()).toBe("went\n");
    expect((await process.wait()).exitCode).toBe(7);
  } finally {
    await last.dispose();
  }
});
