import { Atoll, Sandbox } from "@atoll/sdk";
import { takeTurns, type Comparison } from "../benchmark.ts";
import { assertGreeting, greeter, timeRawFirstByte } from "../first-byte.ts";
import type { Lab } from "../lab.ts";
import { pollUntil } from "../poll.ts";
import { ServerProcess } from "../server/server-process.ts";

const pooled = 2;

/** Measures from the call of `create` to the first output in the sandbox, with a pool of ready sandboxes. */
export const firstOutputPooled: Comparison = {
  name: "sdk.tti_pool",
  title: "`Sandbox.create` to the first byte of its first command, from a pool; rival: `runsc run` of that command",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 0.25 },
  rounds: { full: 30, quick: 10 },
  run: (lab, rounds) => measure(lab, rounds, pooled),
};

/** Measures the same without a pool. */
export const firstOutputCold: Comparison = {
  name: "sdk.tti_cold",
  title: "`Sandbox.create` to the first byte of its first command, without a pool; rival: `runsc run` of that command",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.4 },
  rounds: { full: 30, quick: 10 },
  run: (lab, rounds) => measure(lab, rounds, 0),
};

async function measure(lab: Lab, rounds: number, poolCount: number): ReturnType<Comparison["run"]> {
  const flags = poolCount === 0 ? [] : ["--pool", JSON.stringify([{ count: poolCount }])];
  await using server = await ServerProcess.start({ dir: `${lab.dir}/server`, flags });
  await using client = new Atoll({ baseUrl: server.url, apiKey: server.key });
  const samples = await takeTurns(lab, rounds, {
    ours: async () => {
      await lab.until(untilPooled(server, poolCount, lab.signal), "full pool");
      return timeFirstOutput(lab, client);
    },
    rival: async () => {
      // Without this wait, the sandbox that replaces the one taken from the pool would start beside the rival.
      await lab.until(untilPooled(server, poolCount, lab.signal), "full pool");
      return timeRawFirstByte(lab);
    },
  });
  return { ...samples, checks: [] };
}

async function untilPooled(server: ServerProcess, count: number, signal: AbortSignal): Promise<void> {
  if (count > 0) await pollUntil(async () => (await server.metrics())("atoll_sandboxes_pooled") >= count, signal);
}

async function timeFirstOutput(lab: Lab, client: Atoll): Promise<number> {
  let tookMs: number | undefined;
  const startMs = performance.now();
  await using sandbox = await lab.until(Sandbox.create({ client }), "sandbox");
  const running = sandbox.commands.run([...greeter.argv], {
    onStdout: () => {
      tookMs ??= performance.now() - startMs;
    },
  });
  const { stdout, exitCode } = await lab.until(running, "end of the first command");
  assertGreeting(stdout);
  if (tookMs === undefined || exitCode !== 0) throw new Error(`The first command ended with ${exitCode}`);
  return tookMs;
}
