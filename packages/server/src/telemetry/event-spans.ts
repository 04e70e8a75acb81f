import type { SandboxState } from "@atoll/protocol";
import type { NewEvent } from "../events/event-journal.ts";
import type { Span, Tracing } from "./tracing.ts";

/** The names of the steps that a sandbox is in during these states. */
const steps: Partial<Record<SandboxState, string>> = {
  creating: "sandbox create",
  pausing: "sandbox pause",
  resuming: "sandbox resume",
  killing: "sandbox kill",
};

/**
 * Makes spans from events that report a beginning and an end: the steps of a sandbox, and commands. Each is a child of
 * the span that was current at its beginning. They contain no arguments of commands, which may be secret.
 */
export class EventSpans {
  readonly #tracing: Tracing;
  /** Open spans by the id of the sandbox or command. */
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
      case "sandbox.isolated":
      case "sandbox.isolation_ended":
      case "sandbox.rolled_back":
      case "checkpoint.removed":
      case "sandbox.taken_over":
      case "sandbox.handed_over":
      case "sandbox.lease_lost":
      case "sandbox.copy_dropped":
      case "limit.near":
      case "limit.hit":
      case "limit.eased":
      case "limit.enforced":
      case "resource.left":
      case "egress.allowed":
      case "egress.refused":
      case "snapshot.created":
      case "snapshot.removed":
      case "security.refused":
        return undefined;
    }
  }

  /** Ends all spans. The sandboxes go on, and this server will not learn of their end. */
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

  /** Ends a span. There is none if an earlier server reported the beginning. */
  #end(id: string, attributes: Parameters<Span["set"]>[0], failure?: string): void {
    const span = this.#open.get(id);
    if (span === undefined) return;
    this.#open.delete(id);
    span.set(attributes);
    if (failure !== undefined) span.fail(failure);
    span.end();
  }
}
