import { expect, test } from "vitest";
import { DetachKeys } from "../../src/terminal/detach-keys.ts";

function type(...pieces: string[]): { sent: string; isDetached: boolean } {
  const keys = new DetachKeys();
  let sent = "";
  for (const piece of pieces) {
    const { data, isDetached } = keys.filter(Buffer.from(piece));
    sent += Buffer.from(data).toString();
    if (isDetached) return { sent, isDetached };
  }
  return { sent, isDetached: false };
}

test.for([
  [["~."], "", true],
  [["ls\r~."], "ls\r", true],
  [["ls\r", "~", "."], "ls\r", true],
  [["ls\r~.rest"], "ls\r", true],
  [["a~."], "a~.", false],
  [["~~."], "~.", false],
  [["~x\r"], "~x\r", false],
  [["~\r~."], "~\r", true],
  [["cd ~\r./a\r"], "cd ~\r./a\r", false],
] as const)("%j sends %j and leaves: %s", ([pieces, sent, isDetached]) => {
  expect(type(...pieces)).toEqual({ sent, isDetached });
});
