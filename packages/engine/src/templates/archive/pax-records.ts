import { decodeName, MalformedArchive, type TarHeader } from "./tar-header.ts";

/** The fields that an extended header may override. */
export type Overrides = Partial<Pick<TarHeader, "path" | "linkPath" | "size" | "uid" | "gid" | "mtimeSeconds">>;

/**
 * Parses the records of a POSIX extended header, each `<length> <key>=<value>` and a newline. Keys other than name,
 * size and owner are ignored; extended attributes are among them and do not reach the template.
 */
export function parsePaxRecords(bytes: Buffer): Overrides {
  const overrides: Overrides = {};
  for (let rest = bytes; rest.length > 0;) {
    const space = rest.indexOf(0x20);
    const length = Number(rest.toString("latin1", 0, Math.max(0, space)));
    const isWhole = space > 0 && Number.isSafeInteger(length) && length > space + 2 && length <= rest.length;
    if (!isWhole || rest[length - 1] !== 0x0a) throw new MalformedArchive("an extended header is damaged");
    const record = rest.subarray(space + 1, length - 1);
    const equals = record.indexOf(0x3d);
    if (equals <= 0) throw new MalformedArchive("an extended header is damaged");
    Object.assign(overrides, overrideOf(record.toString("latin1", 0, equals), record.subarray(equals + 1)));
    rest = rest.subarray(length);
  }
  return overrides;
}

function overrideOf(key: string, value: Buffer): Overrides {
  if (key.startsWith("GNU.sparse.")) throw new MalformedArchive("it has sparse files in it, which are not supported");
  switch (key) {
    case "path":
      return { path: decodeName(value) };
    case "linkpath":
      return { linkPath: decodeName(value) };
    case "size":
      return { size: wholeNumber(key, value) };
    case "uid":
      return { uid: wholeNumber(key, value) };
    case "gid":
      return { gid: wholeNumber(key, value) };
    case "mtime":
      return { mtimeSeconds: Math.floor(Number(value.toString("latin1"))) || 0 };
    default:
      return {};
  }
}

function wholeNumber(key: string, value: Buffer): number {
  const text = value.toString("latin1");
  const number = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(number)) return number;
  throw new MalformedArchive(`${key} ${JSON.stringify(text)} is not a number`);
}
