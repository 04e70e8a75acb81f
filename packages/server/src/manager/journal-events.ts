import type { ApiEvent, CommandInfo, SandboxEventMessage } from "@atoll/protocol";
import type { NewEvent } from "../events/event-journal.ts";

/** What the engine tells of a sandbox, as clients are told. */
export function sandboxEvent(message: SandboxEventMessage): NewEvent {
  if (message.type !== "state") return message satisfies NewEvent;
  return { ...message, type: "sandbox.state" };
}

export function commandStarted({ id, sandboxId, argv }: CommandInfo): NewEvent {
  return { type: "command.started", sandboxId, commandId: id, argv };
}

export function commandEnded({ id, sandboxId, state, ...end }: CommandInfo): NewEvent {
  if (state === "lost") {
    return { type: "command.lost", sandboxId, commandId: id, because: end.lostBecause ?? "nobody knows why" };
  }
  const { exitCode, signal, timedOut } = end;
  return { type: "command.ended", sandboxId, commandId: id, exitCode, signal, timedOut } satisfies Partial<ApiEvent>;
}
