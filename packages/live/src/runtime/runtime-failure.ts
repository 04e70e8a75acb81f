import type { RuntimeErrorCode } from "../wire/protocol.ts";

/** A failure with a code that the host understands. */
export class RuntimeFailure extends Error {
  override readonly name = "RuntimeFailure";
  readonly code: RuntimeErrorCode;
  readonly service: string | undefined;

  constructor(code: RuntimeErrorCode, message: string, options: { cause?: unknown; service?: string } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.service = options.service;
  }
}
