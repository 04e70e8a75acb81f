import type { CommandInfo } from "@atoll/protocol";
import type { CommandHandle } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { Interruption } from "../interruption.ts";
import { RawTerminal, terminalSize, watchSize } from "../terminal/raw-terminal.ts";
import { printReattachHint } from "./print-reattach-hint.ts";
import { pumpStdin } from "./pump-stdin.ts";
import { relayOutput } from "./relay-output.ts";

export interface AttachOptions {
  /** Bytes of its output that are not wanted. */
  from?: number;
  /** Our stdin goes inside. */
  hasStdin: boolean;
  /** Somebody else started it: Ctrl-C leaves it alone where it is not typed into its terminal. */
  isGuest?: boolean;
}

/** How the user and the command parted. */
export type Parting = { how: "ended"; command: CommandInfo } | { how: "detached" };

/** A user who presses Ctrl-C this often wants to leave, whatever the command makes of it. */
const interruptsToLeave = 3;

/**
 * Connects this terminal, or these pipes, with a command until it ends or the user leaves it. With a terminal on both
 * sides every key goes inside; without one, Ctrl-C and SIGTERM are sent on as signals.
 */
export async function attachTo(cli: Cli, handle: CommandHandle, options: AttachOptions): Promise<Parting> {
  const { hasPty } = handle.command;
  const over = new AbortController();
  const signal = AbortSignal.any([cli.signal, over.signal]);
  using terminal = new RawTerminal(cli.stdin, cli.stdout, hasPty && options.hasStdin && !cli.isJson);
  const unwatch = hasPty ? watchSize(cli.stdout, cli.stderr, (size) => handle.resize(size, { signal })) : undefined;
  const stopSignals = terminal.isRaw || options.isGuest === true ? undefined : passOnSignals(cli, handle);
  if (terminal.isRaw && options.isGuest === true) {
    await handle.resize(terminalSize(cli.stdout, cli.stderr), { signal }).catch(() => undefined);
  }
  const typed = options.hasStdin
    ? pumpStdin(cli.stdin, handle, { isTyped: terminal.isRaw, signal })
    : new Promise<never>(() => undefined);
  const output = relayOutput(cli, handle, { ...(options.from === undefined ? {} : { from: options.from }), signal });
  try {
    const parting = await Promise.race([
      output.then((command): Parting => ({ how: "ended", command })),
      // The end of our input is not the end of the command.
      typed.then(({ isDetached }): Parting | Promise<never> =>
        isDetached ? { how: "detached" } : new Promise(() => undefined),
      ),
    ]);
    if (parting.how === "ended") terminal.endedByItself();
    return parting;
  } catch (error) {
    terminal[Symbol.dispose]();
    if (cli.signal.aborted) await leave(cli, handle, options);
    throw error;
  } finally {
    over.abort();
    // Both end with the abort; whatever they still have to say comes too late.
    await Promise.allSettled(options.hasStdin ? [output, typed] : [output]);
    unwatch?.();
    stopSignals?.();
  }
}

/** A command that we started loses its reader with us, as in any pipe. Otherwise it goes on. */
async function leave(cli: Cli, handle: CommandHandle, options: AttachOptions): Promise<void> {
  // Anything but a signal: what takes our output has failed.
  const isReaderGone = !(cli.signal.reason instanceof Interruption) || cli.signal.reason.signal === "SIGPIPE";
  if (isReaderGone && options.isGuest !== true) await handle.kill("SIGPIPE").catch(() => undefined);
  else printReattachHint(cli, handle.command);
}

/** Ours would end us and leave the command alone. */
function passOnSignals(cli: Cli, handle: CommandHandle): () => void {
  let interrupts = 0;
  const passOn = (name: "SIGINT" | "SIGTERM") => {
    interrupts += 1;
    if (interrupts < interruptsToLeave) {
      // A command that has just ended refuses the signal, and its end is on its way.
      handle.kill(name).catch(() => undefined);
    } else {
      cli.interrupt(name);
    }
  };
  return cli.takeSignals(passOn);
}
