import { SandboxError } from "@atoll/protocol";
import type { GuestMessage } from "./messages.ts";

/** Returns the error for a guest that broke the protocol: its sandbox cannot be used any more. */
export function violation(what: string): SandboxError {
  return new SandboxError("guest_violation", `Cannot trust the sandbox any more: ${what}`, {
    suggestion: "Something inside broke the protocol between host and guest. The sandbox is ended.",
  });
}

export function wrongAnswer(message: GuestMessage): never {
  throw new SandboxError("guest_violation", `Cannot use the guest's answer: it says ${message.type}`);
}
