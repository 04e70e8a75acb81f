import type { CommandInfo } from "@atoll/protocol";
import type { CommandEnd } from "../../models/command.ts";

/** What the server knows of an end, in the words of the runner. */
export function endOf(command: CommandInfo, timeoutMs: number): CommandEnd {
  if (command.lostBecause !== undefined) return { kind: "lost", reason: command.lostBecause };
  if (command.timedOut) return { kind: "timeout", limitMs: timeoutMs, reason: "total" };
  if (command.outOfMemory === true) return { kind: "oom" };
  if (command.exitCode !== null) return { kind: "exit", code: command.exitCode };
  if (command.signal !== null) return { kind: "signal", signal: command.signal };
  return { kind: "lost", reason: "the server does not say how it ended" };
}
