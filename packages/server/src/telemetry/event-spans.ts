import type { SandboxState } from "@atoll/protocol";
import type { NewEvent } from "../events/event-journal.ts";
import type { Span, Tracing } from "./tracing.ts";

/** What a sandbox is in the middle of, in these states. */
const steps: Partial<Record<SandboxState, string>> = {
  creating: "sandbox create",
  pausing: "sandbox pause",
  resuming: "sandbox resume",
  killing: "sandbox kill",
};

/**
 * Spans of what events tell the beginning and the end of: the steps of a sandbox, and commands. Each is below what was
 * under way when it began. Arguments of a command are not in them: they may be secret.
 */
export class EventSpans {
  readonly #tracing: Tracing;
  /** By the id of the sandbox or command. */
  readonly #open = new Map<string, Span>();

  constructor(tracing: Tracing) {
    this.#tracing = tracing;
  }

  record(event: NewEvent): void {
    switch (event.type) {
      case "sandbox.state":
        return this.#changed(event);
      case "command.started": {
        const { sandboxId, commandId, argv } = event;
        return this.#begin(commandId, "command", {
          "atoll.sandbox.id": sandboxId,
          "atoll.command.id": commandId,
          "process.executable.name": argv[0],
        });
      }
      case "command.ended":
        return this.#end(event.commandId, {
          "process.exit.code": event.exitCode ?? undefined,
          "atoll.command.signal": event.signal ?? undefined,
          "atoll.command.timed_out": event.timedOut,
        });
      case "command.lost":
        return this.#end(event.commandId, {}, event.because);
      case "sandbox.guest":
      case "sandbox.rolled_back":
      case "checkpoint.removed":
      case "sandbox.taken_over":
      case "sandbox.handed_over":
      case "sandbox.lease_lost":
      case "sandbox.copy_dropped":
      case "limit.near":
      case "limit.hit":
      case "limit.eased":
      case "egress.allowed":
      case "egress.refused":
      case "snapshot.created":
      case "snapshot.removed":
      case "security.refused":
        return undefined;
    }
  }

  /** What is under way goes on, and this server will not learn of its end. */
  async close(): Promise<void> {
    for (const id of this.#open.keys()) this.#end(id, { "atoll.left": true });
    await this.#tracing.close();
  }

  #changed({ sandboxId, to, reason }: Extract<NewEvent, { type: "sandbox.state" }>): void {
    this.#end(sandboxId, {}, to === "failed" ? (reason?.message ?? to) : undefined);
    const step = steps[to];
    if (step === undefined) return;
    this.#begin(sandboxId, step, { "atoll.sandbox.id": sandboxId, "atoll.end.reason": reason?.kind });
  }

  #begin(id: string, name: string, attributes: Record<string, string | undefined>): void {
    this.#open.set(id, this.#tracing.start(name, { attributes }));
  }

  /** Of what an earlier server began there is no span. */
  #end(id: string, attributes: Parameters<Span["set"]>[0], failure?: string): void {
    const span = this.#open.get(id);
    if (span === undefined) return;
    this.#open.delete(id);
    span.set(attributes);
    if (failure !== undefined) span.fail(failure);
    span.end();
  }
}
