import type { ApiEvent, CommandInfo, SandboxEventMessage } from "@atoll/protocol";
import type { NewEvent } from "../events/event-journal.ts";

/** Converts a message of the engine about a sandbox to an event for clients. */
export function sandboxEvent(message: SandboxEventMessage): NewEvent {
  if (message.type === "guest") return { ...message, type: "sandbox.guest" };
  if (message.type !== "state") return message satisfies NewEvent;
  return { ...message, type: "sandbox.state" };
}

/** The most characters of all arguments together, because an event is stored and sent to many clients. */
const maxArgvCharacters = 4 * 1024;

export function commandStarted({ id, sandboxId, argv }: CommandInfo): NewEvent {
  const kept: string[] = [];
  let room = maxArgvCharacters;
  for (const word of argv) {
    if (room <= 0) break;
    kept.push(word.slice(0, room));
    // The added one makes empty arguments count, too.
    room -= word.length + 1;
  }
  const isCut = kept.length < argv.length || kept.at(-1) !== argv.at(-1);
  return { type: "command.started", sandboxId, commandId: id, argv: kept, ...(isCut ? { isCut } : {}) };
}

export function commandEnded({ id, sandboxId, state, ...end }: CommandInfo): NewEvent {
  if (state === "lost") {
    return { type: "command.lost", sandboxId, commandId: id, because: end.lostBecause ?? "the reason is unknown" };
  }
  const { exitCode, signal, timedOut } = end;
  return { type: "command.ended", sandboxId, commandId: id, exitCode, signal, timedOut } satisfies Partial<ApiEvent>;
}
