import { exitCodeOfSignal } from "./exit-code.ts";

export type EndingSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

/** The user or the system ended this call, so there is no error to explain. */
export class Interruption extends Error {
  readonly signal: EndingSignal | "SIGPIPE";
  readonly exitCode: number;

  constructor(signal: EndingSignal | "SIGPIPE") {
    super(`Interrupted by ${signal}`);
    this.signal = signal;
    this.exitCode = exitCodeOfSignal(signal);
  }
}
