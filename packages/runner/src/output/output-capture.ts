import { mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { OutputSink } from "../client/sandbox-client.ts";
import type { OutputFile } from "../models/command.ts";
import { BoundedFile } from "./bounded-file.ts";
import { LastLine } from "./last-line.ts";
import { readEnds } from "./read-text.ts";

const KiB = 1024;
const MiB = 1024 * KiB;

export interface OutputCaptureOptions {
  /** The directory of the run. */
  directory: string;
  /** Relative to it and without an ending: `logs/<instance>/test-1` becomes `test-1.stdout`, `test-1.stderr` … */
  path: string;
  /** The largest that each file becomes. */
  maxFileBytes?: number;
  /** How much of the file goes into a report as text. */
  headBytes?: number;
  tailBytes?: number;
  /** Receives the line that was printed last, without anything that could steer a terminal. */
  onLine?: (line: string) => void;
}

export interface CapturedOutput {
  stdout: OutputFile;
  stderr: OutputFile;
  /** Both streams in the order of arrival, as parsers want them. */
  combined: OutputFile;
}

type Part = keyof CapturedOutput;

/**
 * Stores the output of one command as files, as it comes. Memory is bounded whatever comes, a slow disk makes the
 * command wait, and bytes are never taken for text.
 */
export class OutputCapture implements OutputSink {
  readonly #options: OutputCaptureOptions;
  readonly #files: Readonly<Record<Part, BoundedFile>>;
  readonly #lines = { stdout: new LastLine(), stderr: new LastLine() };

  private constructor(options: OutputCaptureOptions, files: Readonly<Record<Part, BoundedFile>>) {
    this.#options = options;
    this.#files = files;
  }

  static async open(options: OutputCaptureOptions): Promise<OutputCapture> {
    const { directory, path, maxFileBytes: maxBytes = 64 * MiB } = options;
    await mkdir(dirname(join(directory, path)), { recursive: true });
    const file = (part: Part) => BoundedFile.open(join(directory, nameOf(path, part)), { maxBytes });
    const [stdout, stderr, combined] = await Promise.all([file("stdout"), file("stderr"), file("combined")]);
    return new OutputCapture(options, { stdout, stderr, combined });
  }

  async write(stream: "stdout" | "stderr", data: Uint8Array): Promise<void> {
    const { onLine } = this.#options;
    const line = onLine === undefined ? undefined : this.#lines[stream].push(data);
    if (line !== undefined) onLine?.(line);
    await Promise.all([this.#files[stream].write(data), this.#files.combined.write(data)]);
  }

  /** The files are closed once, also when the command did not end well: they stay open until then. */
  async finish(): Promise<CapturedOutput> {
    const closing = [this.#close("stdout"), this.#close("stderr"), this.#close("combined")] as const;
    // All of them are closed before the first failure is reported.
    await Promise.allSettled(closing);
    const [stdout, stderr, combined] = await Promise.all(closing);
    // Output of one stream is its own order of arrival: the second copy of it is not kept.
    const only = stderr.bytes === 0 ? stdout : stdout.bytes === 0 ? stderr : undefined;
    if (only === undefined) return { stdout, stderr, combined };
    await rm(this.#files.combined.path, { force: true });
    return { stdout, stderr, combined: only };
  }

  async #close(part: Part): Promise<OutputFile> {
    const { path, headBytes = 16 * KiB, tailBytes = 64 * KiB } = this.#options;
    const summary = await this.#files[part].close();
    const ends = await readEnds(this.#files[part].path, headBytes, tailBytes);
    return { path: nameOf(path, part), ...summary, ...ends };
  }
}

function nameOf(path: string, part: Part): string {
  return part === "combined" ? `${path}.log` : `${path}.${part}`;
}
