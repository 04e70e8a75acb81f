import { SandboxError, type EndReason, type SandboxId, type SandboxRecord } from "@atoll/protocol";
import type { ContainerExit } from "../drivers/driver.ts";

/** Returns the error that users of the sandbox get when its container has ended. */
export function explainEnd({ id, limits }: SandboxRecord, exit: ContainerExit): SandboxError {
  const how = exit.outOfMemory
    ? `it used more than its ${limits.memoryBytes} bytes of memory`
    : `its runtime ended with ${exit.signal ?? (exit.exitCode === null ? "no status" : `exit code ${exit.exitCode}`)}`;
  return new SandboxError("sandbox_ended", `Cannot go on: sandbox ${id} has ended: ${how}`, {
    suggestion: exit.outOfMemory
      ? "Raise limits.memoryBytes, or use less."
      : "details.stderr has the runtime's output.",
    details: { sandboxId: id, outOfMemory: exit.outOfMemory, signal: exit.signal, stderr: exit.stderr },
  });
}

export function endReason(error: SandboxError): EndReason {
  if (error.code === "guest_violation") return { kind: "guest", message: error.message };
  // The kernel ends a runtime with this signal when it makes a system call that its own filter forbids.
  if (error.details["signal"] === "SIGSYS") return { kind: "seccomp", message: error.message };
  const kind = error.details["outOfMemory"] === true ? "memory" : "exited";
  return { kind, message: error.message };
}

/** Returns the error of a start whose guest did not answer in time. */
export function startTimedOut(id: SandboxId, timeoutMs: number): SandboxError {
  const what = `Cannot start sandbox ${id}: no answer within ${timeoutMs} ms`;
  return new SandboxError("start_failed", what, { details: { phase: "guest hello" } });
}
