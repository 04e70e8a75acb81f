import { later } from "./backoff.ts";
import type { ByteReader } from "./exchange.ts";

/** Returns a body that breaks off when nothing comes for longer than `silenceMs`. */
export function idleTimeout(body: ByteReader, silenceMs: number): ByteReader {
  let silence: Error | undefined;
  return {
    read: async () => {
      const stop = later(silenceMs, () => {
        silence = new Error(`nothing came for ${silenceMs} ms`);
        body.cancel(silence).catch(() => undefined);
      });
      try {
        const piece = await body.read();
        // A cancelled body may end like a complete one.
        if (silence !== undefined) throw silence;
        return piece;
      } finally {
        stop();
      }
    },
    cancel: (reason) => body.cancel(reason),
  };
}
