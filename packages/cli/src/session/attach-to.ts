import type { CommandInfo } from "@atoll/protocol";
import type { CommandHandle } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { Interruption } from "../interruption.ts";
import { RawTerminal, terminalSize, watchSize } from "../terminal/raw-terminal.ts";
import { pumpStdin } from "./pump-stdin.ts";
import { relayOutput } from "./relay-output.ts";

export interface AttachOptions {
  /** How many bytes of output are skipped. */
  from?: number;
  /** Whether our stdin goes to the command. */
  hasStdin: boolean;
  /** Whether another client started the command: Ctrl-C then does not end it, unless it is typed into its terminal. */
  isStartedElsewhere?: boolean;
}

/** How the session ended. */
export type SessionEnd = { how: "ended"; command: CommandInfo } | { how: "detached" };

/** A user who presses Ctrl-C this often wants to leave, whatever the command does with it. */
const interruptsToLeave = 3;

/**
 * Connects this terminal, or these pipes, with a command until it ends or the user leaves it. With a terminal on both
 * sides every key goes to the command; without one, Ctrl-C and SIGTERM are sent on as signals.
 */
export async function attachTo(cli: Cli, handle: CommandHandle, options: AttachOptions): Promise<SessionEnd> {
  const { hasPty } = handle.command;
  const over = new AbortController();
  const signal = AbortSignal.any([cli.signal, over.signal]);
  using terminal = new RawTerminal(cli.stdin, cli.stdout, hasPty && options.hasStdin && !cli.isJson);
  const unwatch = hasPty ? watchSize(cli.stdout, cli.stderr, (size) => handle.resize(size, { signal })) : undefined;
  const stopSignals = terminal.isRaw || options.isStartedElsewhere === true ? undefined : passOnSignals(cli, handle);
  if (terminal.isRaw && options.isStartedElsewhere === true) {
    await handle.resize(terminalSize(cli.stdout, cli.stderr), { signal }).catch(() => undefined);
  }
  const typed = options.hasStdin
    ? pumpStdin(cli.stdin, handle, { isTyped: terminal.isRaw, signal })
    : new Promise<never>(() => undefined);
  const output = relayOutput(cli, handle, { ...(options.from === undefined ? {} : { from: options.from }), signal });
  try {
    const end = await Promise.race([
      output.then((command): SessionEnd => ({ how: "ended", command })),
      // The end of our input is not the end of the command.
      typed.then(({ isDetached }): SessionEnd | Promise<never> =>
        isDetached ? { how: "detached" } : new Promise(() => undefined),
      ),
    ]);
    if (end.how === "ended") terminal.endedByItself();
    return end;
  } catch (error) {
    terminal[Symbol.dispose]();
    if (cli.signal.aborted) await leave(cli, handle, options);
    throw error;
  } finally {
    over.abort();
    // Both end with the abort; their results are not needed any more.
    await Promise.allSettled(options.hasStdin ? [output, typed] : [output]);
    unwatch?.();
    stopSignals?.();
  }
}

/**
 * Leaves the command. One that we started loses the reader of its output with us, as in any pipe. Any other goes on.
 */
async function leave(cli: Cli, handle: CommandHandle, options: AttachOptions): Promise<void> {
  // If the reason is not a signal, the reader of our output has failed.
  const isReaderGone = !(cli.signal.reason instanceof Interruption) || cli.signal.reason.signal === "SIGPIPE";
  if (isReaderGone && options.isStartedElsewhere !== true) await handle.kill("SIGPIPE").catch(() => undefined);
  else printReattachHint(cli, handle.command);
}

/** Sends our signals to the command; without this they would end us and leave the command running. */
function passOnSignals(cli: Cli, handle: CommandHandle): () => void {
  let interrupts = 0;
  const passOn = (name: "SIGINT" | "SIGTERM") => {
    interrupts += 1;
    if (interrupts < interruptsToLeave) {
      // A command that has just ended refuses the signal, and its end is about to arrive.
      handle.kill(name).catch(() => undefined);
    } else {
      cli.interrupt(name);
    }
  };
  return cli.takeSignals(passOn);
}

/** Shows how to return to a command that goes on. */
export function printReattachHint(cli: Cli, { sandboxId, id }: CommandInfo): void {
  cli.note(`\natoll: the command goes on; return to it with: atoll attach ${sandboxId} ${id}`);
}
