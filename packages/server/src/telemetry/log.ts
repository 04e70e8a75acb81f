import { destination, pino, type Logger } from "pino";

export type Log = Logger;

/**
 * JSON lines on stderr: stdout is for what people are told. Fields that could hold a secret are cut out wherever they
 * turn up.
 */
export function createLog(level: string): Log {
  const secret = ["authorization", "token", "secret", "key.secret", "headers", "env"];
  const redact = { paths: [...secret, ...secret.map((name) => `*.${name}`)], censor: "[redacted]" };
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime, redact }, destination(2));
}
