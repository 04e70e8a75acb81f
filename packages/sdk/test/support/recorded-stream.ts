import type { OutputEvent } from "@atoll/sdk";

/** Characters of one to four bytes, so that many cuts fall into the middle of one. */
export const recorded = [
  { stream: "stdout", text: "one € " },
  { stream: "stderr", text: "zwei 🙂" },
  { stream: "stdout", text: "три\n" },
  { stream: "stderr", text: "!" },
] as const;

export const recordedBytes = recorded.reduce((sum, { text }) => sum + new TextEncoder().encode(text).length, 0);

export function textOf(stream: "stdout" | "stderr"): string {
  return recorded.flatMap((piece) => (piece.stream === stream ? [piece.text] : [])).join("");
}

/** Throws unless every byte comes once and in order, with one end. */
export function assertWhole(events: readonly OutputEvent[]): { stdout: string; stderr: string } {
  let at = 0;
  const offsets = { stdout: 0, stderr: 0 };
  const text = { stdout: "", stderr: "" };
  events.forEach((event, index) => {
    if (event.type === "dropped") throw new Error("nothing may be dropped");
    if (event.type === "ended") {
      if (index !== events.length - 1) throw new Error("the end is not the last event");
      return;
    }
    if (event.at !== at) throw new Error(`a piece is at ${event.at} and not at ${at}`);
    if (event.offset !== offsets[event.type]) throw new Error(`a piece of ${event.type} has offset ${event.offset}`);
    at += event.data.length;
    offsets[event.type] += event.data.length;
    text[event.type] += event.text;
  });
  if (events.at(-1)?.type !== "ended") throw new Error("there is no end");
  return text;
}
