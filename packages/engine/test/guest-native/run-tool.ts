import { parseEntry, readRecords, type FileEntry } from "../../src/guest/tool-records.ts";
import type { StreamLog } from "./guest-stream-log.ts";
import type { NativeGuest } from "./native-guest.ts";

/** Runs one of the guest's tools to its end. */
export async function tool(guest: NativeGuest, argv: string[], input?: Buffer | string): Promise<StreamLog> {
  const id = guest.spawn(argv, { tool: true, stdin: input !== undefined });
  guest.stream(id);
  if (input !== undefined) await guest.feed(id, Buffer.from(input));
  return guest.finish(id);
}

/** Resolves to the exit code, which is an errno. */
export async function outcome(
  guest: NativeGuest,
  argv: string[],
  input?: Buffer | string,
): Promise<number | null | undefined> {
  return (await tool(guest, argv, input)).exit?.exitCode;
}

export async function entries(log: StreamLog): Promise<FileEntry[]> {
  const found: FileEntry[] = [];
  for await (const record of readRecords(chunks(log.stdout))) found.push(parseEntry(record));
  return found;
}

async function* chunks(data: Buffer): AsyncGenerator<{ data: Buffer }, void, void> {
  yield { data };
}
