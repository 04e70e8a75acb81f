import { SandboxError } from "@atoll/protocol";
import { readProgram } from "./host-output.ts";

export interface HostTarOptions {
  signal: AbortSignal;
  /** The owner of everything in the archive; the reader may have its own opinion. */
  uid?: number;
}

/** A directory of the host, with everything below it, as an archive. */
export function packHostDirectory(
  directory: string,
  { signal, uid = 0 }: HostTarOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const owner = [`--owner=${uid}`, `--group=${uid}`, "--numeric-owner"];
  const format = ["--format=gnu", "--hard-dereference"];
  return readProgram(["tar", "--directory", directory, ...format, ...owner, "--create", "--file", "-", "."], {
    signal,
    failure: (words) =>
      new SandboxError("file_error", `Cannot read ${directory}: ${words.split("\n")[0] ?? "tar has failed"}`, {
        suggestion: "See that its files can be read and do not change while they are copied.",
      }),
  });
}
