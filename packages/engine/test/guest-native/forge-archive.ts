import { PayloadWriter } from "../../src/guest/wire.ts";

/** Owner, mode and time of an entry; the default owner has no rights. */
export interface ForgedAttributes {
  uid?: number;
  gid?: number;
  mode?: number;
  seconds?: bigint;
  nanoseconds?: number;
  xattrs?: [name: string, value: Buffer | string, claimedBytes?: number | undefined][];
}

const unprivilegedId = 65_534;

const u8 = (value: number): Buffer => Buffer.of(value);
const u16 = (value: number): Buffer => new PayloadWriter().u16(value).finish();
const u32 = (value: number): Buffer => new PayloadWriter().u32(value).finish();
const u64 = (value: bigint | number): Buffer => new PayloadWriter().u64(BigInt(value)).finish();

function bytesOf(text: Buffer | string): Buffer {
  return typeof text === "string" ? Buffer.from(text, "latin1") : text;
}

function named(text: Buffer | string): Buffer {
  const bytes = bytesOf(text);
  return Buffer.concat([u8(bytes.byteLength), bytes]);
}

function long(text: Buffer | string): Buffer {
  const bytes = bytesOf(text);
  return Buffer.concat([u32(bytes.byteLength), bytes]);
}

function attributes({
  uid = unprivilegedId,
  gid = unprivilegedId,
  mode = 0o644,
  seconds = 1n,
  nanoseconds = 2,
}: ForgedAttributes): Buffer {
  return Buffer.concat([u32(uid), u32(gid), u16(mode), u64(BigInt.asUintN(64, seconds)), u32(nanoseconds)]);
}

function extended({ xattrs = [] }: ForgedAttributes): Buffer {
  const values = xattrs.map(([name, value, claimed]) =>
    Buffer.concat([named(name), u32(claimed ?? bytesOf(value).byteLength), bytesOf(value)]),
  );
  return Buffer.concat([u16(values.length), ...values]);
}

/** Makes archives by hand, also ones that `pack` would never write. */
export const forge = {
  archive: (...parts: Buffer[]): Buffer => Buffer.concat([Buffer.from("atollpk1"), ...parts, Buffer.from("Z")]),
  tree: (...entries: Buffer[]): Buffer => Buffer.concat([Buffer.from("T"), ...entries, forge.end({ mode: 0o755 })]),
  end: (given: ForgedAttributes = {}): Buffer => Buffer.concat([Buffer.from("E"), attributes(given), extended(given)]),
  directory: (name: Buffer | string, entries: Buffer[] = [], given: ForgedAttributes = {}): Buffer =>
    Buffer.concat([Buffer.from("D"), named(name), ...entries, forge.end({ mode: 0o755, ...given })]),
  chunk: (offset: bigint | number, data: Buffer | string, claimed?: number): Buffer =>
    Buffer.concat([Buffer.from("C"), u64(offset), u32(claimed ?? bytesOf(data).byteLength), bytesOf(data)]),
  file: (
    name: Buffer | string,
    size: bigint | number = 0,
    chunks: Buffer[] = [],
    given: ForgedAttributes = {},
  ): Buffer => Buffer.concat([Buffer.from("F"), named(name), u64(size), ...chunks, forge.end(given)]),
  link: (name: Buffer | string, target: Buffer | string, given: ForgedAttributes = {}): Buffer =>
    Buffer.concat([Buffer.from("L"), named(name), long(target), attributes(given)]),
  pipe: (name: string, given: ForgedAttributes = {}): Buffer =>
    Buffer.concat([Buffer.from("P"), named(name), attributes(given)]),
  socket: (name: string, given: ForgedAttributes = {}): Buffer =>
    Buffer.concat([Buffer.from("S"), named(name), attributes(given)]),
  whiteout: (name: string): Buffer => Buffer.concat([Buffer.from("W"), named(name)]),
  anotherName: (name: string, first: Buffer | string): Buffer =>
    Buffer.concat([Buffer.from("H"), named(name), long(first)]),
};
