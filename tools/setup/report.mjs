/**
 * @typedef {object} Report
 * @property {(text: string) => void} ok reports that something is in order; prints nothing when quiet
 * @property {(text: string) => void} say reports something that the reader should know
 * @property {(text: string) => void} problem reports something missing or wrong
 * @property {<T>(title: string, work: () => Promise<T>) => Promise<T>} step names the work, and prints progress while
 * it runs
 */

/** After this long without output a reader wonders whether the program hangs. */
const heartbeatMs = 15_000;

/**
 * @param {{ isQuiet: boolean }} options
 * @returns {Report}
 */
export function createReport({ isQuiet }) {
  /** @param {string} text */
  const indent = (text) => text.replaceAll("\n", "\n  ");
  return {
    ok: (text) => {
      if (!isQuiet) console.log(`✓ ${indent(text)}`);
    },
    say: (text) => console.log(`• ${indent(text)}`),
    problem: (text) => console.error(`✗ ${indent(text)}`),
    step: async (title, work) => {
      const startedAtMs = Date.now();
      const seconds = () => Math.round((Date.now() - startedAtMs) / 1000);
      console.log(`• ${title} …`);
      const heartbeat = setInterval(() => console.log(`  still running (${seconds()} s)`), heartbeatMs);
      try {
        const result = await work();
        if (seconds() > 0) console.log(`  done in ${seconds()} s`);
        return result;
      } finally {
        clearInterval(heartbeat);
      }
    },
  };
}
