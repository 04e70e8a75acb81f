import { createHash } from "node:crypto";
import type { Sandbox } from "@atoll/engine";
import { takeTurns, type Benchmark } from "../benchmark.ts";
import type { Lab } from "../lab.ts";
import { MemoryWatch } from "../memory-watch.ts";

const MiB = 1024 * 1024;
const totalBytes = 256 * MiB;
const allowedGrowthBytes = 32 * MiB;

/** The program that produces the bytes at nearly no cost. */
const fastArgv = ["/usr/bin/head", "-c", String(totalBytes), "/dev/zero"];
/**
 * The first of lines with increasing numbers, of 16 bytes each. All lines differ, so a block that is lost, doubled or
 * moved changes the checksum.
 */
const firstLine = 100_000_000_000_000;
const distinctArgv = ["/usr/bin/seq", String(firstLine), String(firstLine + totalBytes / 16 - 1)];

type Take = (chunk: Buffer) => void;
/**
 * Runs a command and passes its output to `take`. Resolves to the time from the first byte to the end of the output.
 */
type Stream = (argv: string[], take: Take) => Promise<number>;

/** Measures how fast the output of one process reaches the caller. */
export const throughput: Benchmark = {
  name: "engine.throughput",
  title:
    `${totalBytes / MiB} MiB of output of one process; ` +
    "rival: the same process under `runsc run`, read from a pipe",
  unit: "MiB/s",
  better: "higher",
  bar: { of: "ratio", is: "at least", value: 0.5 },
  rounds: { full: 30, quick: 10 },
  async run(lab, rounds) {
    await using sandbox = await lab.create();
    using memory = new MemoryWatch();
    const ours: Stream = async (argv, take) => {
      memory.start();
      const tookMs = await streamOurs(lab, sandbox, argv, take);
      memory.stop();
      return tookMs;
    };
    const rival: Stream = (argv, take) => streamRival(lab, argv, take);
    const sums = { ours: await checksum(ours), rival: await checksum(rival) };
    const samples = await takeTurns(lab, rounds, { ours: () => measureRate(ours), rival: () => measureRate(rival) });
    const growthBytes = memory.growthBytes;
    return {
      ...samples,
      checks: [
        {
          text: `sha256 ours ${sums.ours.slice(0, 12)}…, rival ${sums.rival.slice(0, 12)}…`,
          isMet: sums.ours === sums.rival,
        },
        {
          text: `our memory grew by ${(growthBytes / MiB).toFixed(1)} MiB, < ${allowedGrowthBytes / MiB} allowed`,
          isMet: growthBytes < allowedGrowthBytes,
        },
      ],
    };
  },
};

async function measureRate(stream: Stream): Promise<number> {
  let bytes = 0;
  const tookMs = await stream(fastArgv, (chunk) => {
    bytes += chunk.byteLength;
  });
  assertComplete(bytes);
  return totalBytes / MiB / (tookMs / 1000);
}

async function checksum(stream: Stream): Promise<string> {
  const hash = createHash("sha256");
  let bytes = 0;
  await stream(distinctArgv, (chunk) => {
    bytes += chunk.byteLength;
    hash.update(chunk);
  });
  assertComplete(bytes);
  return hash.digest("hex");
}

function assertComplete(bytes: number): void {
  if (bytes !== totalBytes) throw new Error(`${bytes} bytes of output arrived, not ${totalBytes}`);
}

async function streamOurs(lab: Lab, sandbox: Sandbox, argv: string[], take: Take): Promise<number> {
  const process = await sandbox.spawn({ argv, cwd: "/" }, { signal: lab.signal });
  let firstMs: number | undefined;
  await process.consume(({ data }) => {
    firstMs ??= performance.now();
    take(data);
  });
  const tookMs = performance.now() - (firstMs ?? 0);
  const { exitCode } = await process.wait();
  if (exitCode !== 0) throw new Error(`${argv[0]} ended with ${exitCode}`);
  return tookMs;
}

async function streamRival(lab: Lab, argv: string[], take: Take): Promise<number> {
  await using bundle = await lab.rival.prepare(argv);
  let firstMs: number | undefined;
  // All chunks go into one buffer: otherwise garbage of the rival's reader would count as our memory.
  const stdout = bundle.start((chunk) => {
    firstMs ??= performance.now();
    take(chunk);
  });
  const ended = new Promise<void>((resolve, reject) => {
    stdout.once("end", resolve);
    stdout.once("error", reject);
  });
  await lab.until(ended, "end of the output of runsc run");
  const tookMs = performance.now() - (firstMs ?? 0);
  await bundle.exited();
  return tookMs;
}
