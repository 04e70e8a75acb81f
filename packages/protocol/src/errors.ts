/**
 * Every error that a caller can act on, one row per code. A code exists when a caller would do something different
 * about it; everything else goes into `details`. `docs/errors.md` has a section per code, and a test compares the two.
 */
export const errorCodes = {
  invalid_argument: { status: 400, retryable: false },
  invalid_state: { status: 409, retryable: false },
  not_found: { status: 404, retryable: false },
  already_exists: { status: 409, retryable: false },
  permission_denied: { status: 403, retryable: false },
  isolated: { status: 423, retryable: false },
  in_use: { status: 409, retryable: true },
  lease_lost: { status: 503, retryable: true },
  unsupported: { status: 501, retryable: false },
  start_failed: { status: 500, retryable: true },
  spawn_failed: { status: 422, retryable: false },
  compile_failed: { status: 422, retryable: false },
  reload_failed: { status: 422, retryable: false },
  handler_failed: { status: 422, retryable: false },
  sandbox_ended: { status: 410, retryable: false },
  guest_violation: { status: 502, retryable: false },
  guest_silent: { status: 504, retryable: true },
  limit_reached: { status: 429, retryable: false },
  unsaveable: { status: 409, retryable: false },
  unrestorable: { status: 409, retryable: false },
  rolled_back: { status: 409, retryable: false },
  conflict: { status: 409, retryable: false },
  storage_failed: { status: 502, retryable: true },
  no_space: { status: 507, retryable: false },
  file_error: { status: 422, retryable: false },
  timed_out: { status: 504, retryable: true },
  unavailable: { status: 503, retryable: true },
  internal: { status: 500, retryable: false },
} as const satisfies Record<string, { status: number; retryable: boolean }>;

export type ErrorCode = keyof typeof errorCodes;

export interface SandboxErrorOptions {
  /** What to do about the error, in one sentence. */
  suggestion?: string;
  /** Facts for programs, as JSON and never with secrets. */
  details?: Record<string, unknown>;
  cause?: unknown;
}

/**
 * Two copies of this package may be in one process. A registered symbol is the same in both; `instanceof` would fail.
 */
const brand = Symbol.for("atoll.SandboxError");

/** The one error class of the product. Its message reads "Cannot <do what was asked>: <reason>". */
export class SandboxError extends Error {
  readonly code: ErrorCode;
  readonly suggestion: string | undefined;
  readonly details: Record<string, unknown>;
  readonly [brand] = true;

  static {
    Object.defineProperty(this.prototype, "name", { value: "SandboxError", writable: true, configurable: true });
  }

  constructor(code: ErrorCode, message: string, options: SandboxErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.suggestion = options.suggestion;
    this.details = options.details ?? {};
  }

  get status(): number {
    return errorCodes[this.code].status;
  }

  get retryable(): boolean {
    return errorCodes[this.code].retryable;
  }

  /** The URL of the code's documentation. */
  get docs(): string {
    return `docs/errors.md#${this.code}`;
  }

  toJSON(): Record<string, unknown> {
    return {
      code: this.code,
      message: this.message,
      ...(this.suggestion === undefined ? {} : { suggestion: this.suggestion }),
      retryable: this.retryable,
      details: this.details,
      docs: this.docs,
    };
  }
}

/** True for a `SandboxError` of any copy of this package, with this code if one is given. */
export function isSandboxError(error: unknown, code?: ErrorCode): error is SandboxError {
  if (typeof error !== "object" || error === null || !(brand in error)) return false;
  return code === undefined || ("code" in error && error.code === code);
}
