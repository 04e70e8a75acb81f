import { errorCodes, SandboxError, WireError, type ErrorCode } from "@atoll/protocol";
import type { CommandResult } from "./commands/command-result.ts";

/** Thrown instead of returned with `check: true`: the command ended otherwise than with exit code 0. */
export class CommandExitError extends Error {
  readonly result: CommandResult;

  static {
    Object.defineProperty(this.prototype, "name", { value: "CommandExitError", writable: true, configurable: true });
  }

  constructor(result: CommandResult) {
    super(`${describeEnd(result)}${tailOf(result.stderr)}`);
    this.result = result;
  }

  get exitCode(): number | null {
    return this.result.exitCode;
  }

  get stdout(): string {
    return this.result.stdout;
  }

  get stderr(): string {
    return this.result.stderr;
  }
}

function describeEnd({ exitCode, signal, timedOut, outOfMemory, lostBecause }: CommandResult): string {
  if (lostBecause !== undefined) return `The end of the command is not known: ${lostBecause}`;
  if (timedOut) return "The command reached its time limit";
  if (outOfMemory) return "The command ended for lack of memory in the sandbox";
  return exitCode === null ? `The command was ended by ${signal}` : `The command exited with code ${exitCode}`;
}

function tailOf(stderr: string): string {
  const tail = stderr.trimEnd().slice(-500);
  return tail === "" ? "" : `: ${tail}`;
}

/**
 * Turns an error of the server into a `SandboxError`. A code of a newer server becomes `internal`, and stays in the
 * details.
 */
export function errorFromWire(wire: unknown, where: string): SandboxError {
  const parsed = WireError.safeParse(wire);
  if (!parsed.success) return new SandboxError("internal", `Cannot read the error that ${where} gave`);
  const { code, message, suggestion, details } = parsed.data;
  const isKnown = Object.hasOwn(errorCodes, code);
  return new SandboxError(isKnown ? (code as ErrorCode) : "internal", message, {
    ...(suggestion === undefined ? {} : { suggestion }),
    details: isKnown ? (details ?? {}) : { ...details, code },
  });
}

/** The milliseconds after which the server will accept what it refused for now. */
export function retryAfterMs({ details }: SandboxError): number | undefined {
  const { retryAfterMs } = details;
  return typeof retryAfterMs === "number" && retryAfterMs >= 0 ? retryAfterMs : undefined;
}

/** The error for a server that did not answer at all. */
export function connectionError(baseUrl: string, cause: unknown): SandboxError {
  return new SandboxError("unavailable", `Cannot reach the Atoll server at ${baseUrl}: ${reasonOf(cause)}`, {
    suggestion: "Start the server (atoll up), or set baseUrl or ATOLL_API_URL to where it listens",
    details: { baseUrl },
    cause,
  });
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // The message of `fetch` is only "fetch failed"; the reason is in its cause.
  const { cause } = error;
  if (cause instanceof Error) return cause.message === "" ? (codeOf(cause) ?? cause.name) : cause.message;
  return error.message;
}

function codeOf(error: Error): string | undefined {
  return "code" in error && typeof error.code === "string" ? error.code : undefined;
}

/** True when the connection was refused: the server has seen nothing of the request. */
export function isRefused(error: unknown): boolean {
  return error instanceof Error && error.cause instanceof Error && codeOf(error.cause) === "ECONNREFUSED";
}
