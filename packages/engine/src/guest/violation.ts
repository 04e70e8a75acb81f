import { SandboxError } from "@atoll/protocol";
import type { GuestMessage } from "./messages.ts";

/** The guest broke the protocol: its sandbox cannot be talked to any more. */
export function violation(what: string): SandboxError {
  return new SandboxError("guest_violation", `Cannot trust the sandbox any further: ${what}`, {
    suggestion: "Something inside broke the protocol between host and guest. The sandbox is ended.",
  });
}

export function wrongAnswer(message: GuestMessage): never {
  throw new SandboxError("guest_violation", `Cannot use the guest's answer: it says ${message.type}`);
}
