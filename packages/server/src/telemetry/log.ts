import { destination, pino, type Logger } from "pino";

export type Log = Logger;

/** Creates a logger for JSON lines on stderr; stdout is for people. Fields that may contain a secret are redacted. */
export function createLog(level: string): Log {
  const secret = ["authorization", "token", "secret", "key.secret", "headers", "env"];
  const redact = { paths: [...secret, ...secret.map((name) => `*.${name}`)], censor: "[redacted]" };
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime, redact }, destination(2));
}
