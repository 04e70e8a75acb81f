import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { beforeAll, expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import { SeededRandom } from "../support/seeded-random.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";
import { forge, type ForgedAttributes } from "./forge-archive.ts";
import { buildTimeoutMs, guestProgram, jailed, SanitizerReports } from "./guest-program.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const rounds = thorough(40, 3_000);
const deepest = 6;

function anyAttributes(random: SeededRandom): ForgedAttributes {
  const xattrs: [string, Buffer][] = random.below(4) === 0 ? [["user.x", random.bytes(random.below(50))]] : [];
  return { mode: 0o700 | random.below(0o777), seconds: BigInt(random.u32()), nanoseconds: random.below(1000), xattrs };
}

function anyChunks(random: SeededRandom, size: number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < size; at += 4096)
    if (random.below(2) === 0) chunks.push(forge.chunk(at, random.bytes(Math.min(4096, size - at))));
  return chunks;
}

/** Makes entries of an honest tree, with the names of earlier ones to refer to. */
function anyEntries(random: SeededRandom, path: string, depth: number, firsts: string[]): Buffer[] {
  const names = "abcdefgh"
    .split("")
    .filter(() => random.below(3) === 0)
    .map((letter) => `${letter}${random.below(10)}`);
  return names.map((name) => {
    const given = anyAttributes(random);
    const size = random.below(12_000);
    const first = firsts.length > 0 ? random.oneOf(firsts) : "";
    switch (random.below(depth < deepest ? 10 : 7)) {
      case 0:
        return forge.link(name, random.oneOf(["..", "/", "../outside", "a0", "x".repeat(300)]), given);
      case 1:
        return forge.pipe(name, given);
      case 2:
        return forge.socket(name, given);
      case 3:
        return forge.whiteout(name);
      case 4:
        return first === "" ? forge.whiteout(name) : forge.anotherName(name, first);
      case 5:
      case 6:
        firsts.push(`${path}${name}`);
        return forge.file(name, size, anyChunks(random, size), given);
      default:
        return forge.directory(name, anyEntries(random, `${path}${name}/`, depth + 1, firsts), {
          ...given,
          mode: 0o755,
        });
    }
  });
}

function bend(archive: Buffer, random: SeededRandom): Buffer {
  const bent = Buffer.from(archive);
  const at = random.below(bent.byteLength);
  const other = random.below(bent.byteLength);
  switch (random.below(6)) {
    case 0:
      return bent.subarray(0, at);
    case 1:
      return Buffer.concat([bent.subarray(0, at), random.bytes(random.below(20)), bent.subarray(at)]);
    case 2:
      return Buffer.concat([bent.subarray(0, Math.max(at, other)), bent.subarray(Math.min(at, other))]);
    case 3:
      bent.write(random.oneOf(["..", "../", "/", "a/b", "\0", "trusted.", "HTZE"]), at, "latin1");
      return bent;
    case 4:
      bent.writeUInt8(random.oneOf("TDFCLPSWHEZ".split("")).charCodeAt(0), at);
      return bent;
    default:
      for (let flips = 1 + random.below(8); flips > 0; flips -= 1)
        bent.writeUInt8(random.u32() & 0xff, random.below(bent.byteLength));
      return bent;
  }
}

test("no input makes it write outside of the directory or corrupt its memory", async () => {
  const random = SeededRandom.forFuzz("unpack");
  using place = new TemporaryDirectory();
  using reports = new SanitizerReports();
  const [command = "", ...words] = jailed(await guestProgram("sanitized"), place.path);
  mkdirSync(place.join("outside"));
  writeFileSync(place.join("outside", "secret"), "untouched", { mode: 0o666 });
  chmodSync(place.join("outside"), 0o777);
  const around = readdirSync(place.path).toSorted();
  const exits = new Map<number | null, number>();
  for (let round = 0; round < rounds; round += 1) {
    const honest = forge.archive(forge.tree(...anyEntries(random, "", 0, [])));
    let input = honest;
    for (let times = random.below(4); times > 0 && input.byteLength > 0; times -= 1) input = bend(input, random);
    mkdirSync(place.join("into"));
    if (process.getuid?.() === 0) chownSync(place.join("into"), 65_534, 65_534);
    const { status, stderr } = spawnSync(command, [...words, "unpack", place.join("into")], {
      input,
      env: { ...process.env, ...reports.environment },
      timeout: 30_000,
    });
    exits.set(status, (exits.get(status) ?? 0) + 1);
    expect({ status, stderr: stderr.toString() }).toEqual({
      status: expect.toBeOneOf([0, 1]),
      stderr: expect.any(String),
    });
    if (input === honest) expect({ status, stderr: stderr.toString() }).toEqual({ status: 0, stderr: "" });
    expect(reports.read()).toBe("");
    spawnSync("rm", ["-rf", place.join("into")]);
    expect(readdirSync(place.path).toSorted()).toEqual(around);
    expect(readdirSync(place.join("outside"))).toEqual(["secret"]);
    expect(readFileSync(place.join("outside", "secret"), "utf8")).toBe("untouched");
    expect(lstatSync(place.join("outside", "secret")).nlink).toBe(1);
  }
  // Both exit codes occurred.
  expect(new Set(exits.keys())).toEqual(new Set([0, 1]));
});
