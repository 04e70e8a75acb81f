import { stripVTControlCharacters } from "node:util";

/** A line that a person sees in a table is no longer than this. */
const mostCharacters = 200;
const mostBytes = 4 * 1024;

/**
 * The line that a program has printed last, for a person who watches. Whatever could steer a terminal is removed.
 * Memory holds the end of one line, however long lines are.
 */
export class LastLine {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #begun = "";

  /** `undefined`: the line did not change, or nothing of it can be seen. */
  push(data: Uint8Array): string | undefined {
    const text = this.#begun + this.#decoder.decode(data.subarray(-mostBytes), { stream: true });
    const lines = text.split(/[\r\n]+/);
    this.#begun = (lines.at(-1) ?? "").slice(-mostBytes);
    for (const line of lines.toReversed()) {
      const shown = visible(line);
      if (shown !== "") return shown;
    }
    return undefined;
  }
}

function visible(line: string): string {
  return (
    stripVTControlCharacters(line)
      .replaceAll("\t", " ")
      // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
      .replaceAll(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "")
      .trim()
      .slice(0, mostCharacters)
  );
}
