import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import { encodeFrame, headerBytes, protocolConstants, toGuest, tornFramePadding } from "../../src/guest/frames.ts";
import { encodeCount, encodeNodes, type GuestSpawn } from "../../src/guest/requests.ts";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { SeededRandom } from "../support/seeded-random.ts";
import { buildTimeoutMs, guestProgram, type GuestBuild } from "./guest-program.ts";
import { helloPayload, NativeGuest, spawnPayload } from "./native-guest.ts";

beforeAll(async () => {
  await guestProgram("sanitized");
  await guestProgram("release");
}, buildTimeoutMs);

const runMs = thorough(1_000, 60_000);
const framesPerRound = 60;
/** The most memory that a guest may have after any input: its rings, its input buffers and itself. */
const mostMemoryBytes = 160 * 1024 * 1024;
const unprivileged = process.getuid?.() === 0 ? "65534" : String(process.getuid?.() ?? 0);

type Make = (random: SeededRandom, dir: string) => Buffer;

/** There are few ids, so that frames reach existing streams. */
const anyId = (random: SeededRandom): number =>
  random.below(8) === 0 ? random.u32() : 1 + random.below(6) + (random.below(6) === 0 ? 0x8000_0000 : 0);
const anyPosition = (random: SeededRandom): bigint =>
  random.oneOf([0n, 1n, BigInt(random.below(5000)), BigInt(random.u32()), 0xffff_ffff_ffff_ffffn]);

function spawn(parts: Partial<GuestSpawn> & { argv: string[] }): Make {
  return (random) => {
    const windowBytes = random.oneOf([0, 1, 4096, 100_000, protocolConstants.WINDOW_MAX, 0xffff_ffff]);
    const timeoutMs = random.oneOf([1, 50, 3000]);
    const payload = spawnPayload(parts.argv, { user: unprivileged, windowBytes, timeoutMs, ...parts });
    return encodeFrame(toGuest.SPAWN, anyId(random), payload);
  };
}

/** The tools run in the directory with relative names, so that a mutated name still stays in it. */
function tool(make: (random: SeededRandom) => string[]): Make {
  return (random, dir) =>
    spawn({ argv: make(random), cwd: dir, tool: true, stdin: random.below(2) === 0 })(random, dir);
}

const pty = { rows: 24, cols: 80 };
const honest: Make[] = [
  () => encodeFrame(toGuest.HELLO, 0, helloPayload(Buffer.alloc(16))),
  spawn({ argv: ["/bin/true"] }),
  spawn({ argv: ["/nowhere/program"], cwd: "/nowhere" }),
  spawn({ argv: ["cat"], stdin: true }),
  spawn({ argv: ["/bin/sh", "-c", "head -c 2000000 /dev/zero; echo x >&2; sleep 1"], graceMs: 20 }),
  spawn({ argv: ["/bin/sh", "-c", "stty size; cat"], pty }),
  spawn({ argv: ["/bin/sh", "-c", "(sleep 2; echo y) & echo x"], limits: [{ resource: 7, soft: 64, hard: 64 }] }),
  tool(() => ["list", ".", "3"]),
  tool((random) => ["write", `file-${random.below(5)}`, "644", random.oneOf(["replace", "append", "create"])]),
  tool((random) => ["read", `file-${random.below(5)}`, String(random.below(100)), "-1"]),
  tool((random) => ["rename", `file-${random.below(5)}`, `file-${random.below(5)}`, "replace"]),
  tool((random) => ["mkdir", `dir-${random.below(5)}/x`, "755", "parents"]),
  tool((random) => ["remove", `dir-${random.below(5)}`, "recursive"]),
  tool(() => ["watch", ".", "recursive"]),
  tool((random) => ["nodes", ".", random.oneOf(["in", "synced", "below"])]),
  tool((random) => ["mknodes", ".", random.oneOf(["replace", "missing"])]),
  (random) => encodeFrame(toGuest.STDIN, anyId(random), u64(anyPosition(random)), random.bytes(random.below(3000))),
  (random) => encodeFrame(toGuest.STDIN_EOF, anyId(random), u64(anyPosition(random))),
  (random) => encodeFrame(toGuest.ACK, anyId(random), u64(anyPosition(random))),
  (random) => encodeFrame(toGuest.ATTACH, anyId(random), u64(anyPosition(random))),
  (random) =>
    encodeFrame(toGuest.SIGNAL, anyId(random), new PayloadWriter().u32(random.below(70)).u32(random.below(3)).finish()),
  (random) => encodeFrame(toGuest.RESIZE, anyId(random), random.bytes(4)),
  (random) => encodeFrame(toGuest.RELEASE, anyId(random)),
  (random) =>
    encodeFrame(
      toGuest.DIAL,
      anyId(random),
      new PayloadWriter()
        .u16(7000)
        .u8(random.oneOf([4, 6]))
        .u32(0)
        .finish(),
    ),
  (random) => encodeFrame(toGuest.VERDICT, anyId(random), new PayloadWriter().u8(random.below(6)).str("why").finish()),
  (random) => encodeFrame(toGuest.PROXY, anyId(random), new PayloadWriter().u16(7000).finish()),
  (random) => encodeFrame(toGuest.CAP, anyId(random), u64(random.oneOf([0n, 5000n, 0xffff_ffff_ffff_ffffn]))),
  (random) =>
    encodeFrame(toGuest.COUNT, anyId(random), encodeCount([anyId(random), anyId(random)].slice(random.below(3)))),
  (random, dir) => encodeFrame(toGuest.HOLDERS, anyId(random), new PayloadWriter().str(`${dir}/file-1`).finish()),
  (random, dir) => encodeFrame(toGuest.END_HOLDERS, anyId(random), new PayloadWriter().str(`${dir}/file-2`).finish()),
  (random, dir) => {
    const places = [dir, "etc", "tmp", ".", "no/such"].map((path) => ({
      path: Buffer.from(path.replace(/^\//, "")),
      emptyAtNs: BigInt.asIntN(64, anyPosition(random)),
    }));
    return encodeFrame(toGuest.NODES, anyId(random), encodeNodes(random.oneOf(["in", "synced"]), places));
  },
  (random) => encodeFrame(toGuest.PREPARE, anyId(random)),
  (random) =>
    encodeFrame(
      toGuest.RESTORED,
      anyId(random),
      new PayloadWriter().u64(0).bytes(random.bytes(32)).str("fuzz").finish(),
    ),
  (random) => encodeFrame(toGuest.PING, anyId(random), random.bytes(random.below(1100))),
];

/** Changes a payload and makes the frame valid again around it, so that the guest reads the payload. */
function lieInPayload(frame: Buffer, random: SeededRandom): Buffer {
  const payload = Buffer.from(frame.subarray(headerBytes, -4));
  for (let lies = 1 + random.below(4); lies > 0 && payload.byteLength >= 4; lies -= 1) {
    const at = random.below(payload.byteLength - 3);
    if (random.below(2) === 0) payload.writeUInt8(random.u32() & 0xff, at);
    else payload.writeUInt32LE(random.oneOf([0, 1, 0xffff_ffff, 0x7fff_ffff, payload.byteLength, random.u32()]), at);
  }
  const length = random.below(4) === 0 ? random.below(payload.byteLength + 1) : payload.byteLength;
  const type = random.below(20) === 0 ? random.below(256) : frame.readUInt8(8);
  return encodeFrame(type as (typeof toGuest)["PING"], frame.readUInt32LE(12), payload.subarray(0, length));
}

/** Changes the bytes of a frame without making it valid again. */
function breakFrame(frame: Buffer, random: SeededRandom): Buffer {
  const broken = Buffer.from(frame);
  switch (random.below(4)) {
    case 0:
      return broken.subarray(0, random.below(broken.byteLength));
    case 1:
      broken.writeUInt32LE(random.oneOf([0, 1, 0xffff_ffff, protocolConstants.MAX_TO_GUEST + 1, random.u32()]), 4);
      return broken;
    case 2:
      return Buffer.concat([broken, random.bytes(1 + random.below(100))]);
    default: {
      const at = random.below(broken.byteLength);
      broken.writeUInt8(broken.readUInt8(at) ^ (1 << random.below(8)), at);
      return broken;
    }
  }
}

/** Runs one conversation with a host that sends random frames, and then with a host that expects a working guest. */
async function rave(guest: NativeGuest, random: SeededRandom, dir: string): Promise<void> {
  const frames = Array.from({ length: framesPerRound }, () => {
    const frame = random.oneOf(honest)(random, dir);
    const dice = random.below(10);
    return dice < 4 ? frame : dice < 9 ? lieInPayload(frame, random) : breakFrame(frame, random);
  });
  for (const piece of random.pieces(Buffer.concat(frames), random.oneOf([50, 3000, 300_000]))) guest.raw(piece);
  guest.raw(tornFramePadding);
  for (const entry of await guest.hello()) {
    guest.signal(entry.id, 9, 1);
    if (random.below(3) > 0) guest.sendPosition("ATTACH", entry.id, entry.ackedAt);
    guest.send("RELEASE", entry.id);
  }
  guest.send("CAP", 0x7000_0000, u64(0xffff_ffff_ffff_ffffn));
  await guest.settle();
  expect(guest.isAlive).toBe(true);
}

async function fuzz(build: GuestBuild): Promise<void> {
  const random = SeededRandom.forFuzz(`guest ${build}`);
  const dir = mkdtempSync(join(tmpdir(), "atoll-fuzz-"));
  try {
    await using guest = await NativeGuest.start({ build, jailIn: dir });
    guest.followsStreams = false;
    for (const endMs = performance.now() + runMs; performance.now() < endMs;) {
      await rave(guest, random, dir);
      if (build === "release") expect(guest.memoryBytes).toBeLessThan(mostMemoryBytes);
    }
    // Processes that were released run without a reader. At the end nothing is left of any of them.
    await expect
      .poll(() => {
        killChildren(guest.pid);
        return guest.ask("COUNT");
      })
      .toMatchObject({ processes: 0, streams: 0, bufferedBytes: 0 });
    // The descriptors are its stdio, the pipe of its signals, /proc, /dev/null, itself, and perhaps the proxy.
    expect(guest.descriptorCount).toBeLessThanOrEqual(9);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

test("no frames make it read or write invalid memory", { timeout: runMs + 60_000 }, () => fuzz("sanitized"));

test("no frames make it grow without bound or leak", { timeout: runMs + 60_000 }, () => fuzz("release"));

function killChildren(pid: number): void {
  for (const child of readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean)) {
    try {
      process.kill(Number(child), "SIGKILL");
    } catch {
      // The process has ended in between.
    }
  }
}

function u64(value: bigint): Buffer {
  return new PayloadWriter().u64(value).finish();
}
