import { styleText } from "node:util";
import type { Environment } from "../environment.ts";

export type Tone = "good" | "busy" | "bad" | "quiet" | "strong";

/** Colours a text, or returns it unchanged. */
export type Style = (tone: Tone, text: string) => string;

const formats = { good: "green", busy: "yellow", bad: "red", quiet: "dim", strong: "bold" } as const;

const plain: Style = (_tone, text) => text;
// The caller decides on colour, for its own stream; without this option `styleText` would check stdout.
const coloured: Style = (tone, text) => styleText(formats[tone], text, { validateStream: false });

export function styleFor(stream: { isTTY?: boolean }, environment: Environment): Style {
  const hasColour = stream.isTTY === true && !environment.hasNoColor && environment.term !== "dumb";
  return hasColour ? coloured : plain;
}
