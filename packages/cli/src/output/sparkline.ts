const bars = "▁▂▃▄▅▆▇█";

/**
 * Draws the last values as a line of bars, one per value. The largest value has the highest bar, and `least` is the
 * smallest value that has it: so noise around nothing is not drawn as mountains.
 */
export function sparkline(values: readonly number[], { width, least }: { width: number; least: number }): string {
  const shown = values.slice(-width);
  const top = Math.max(least, ...shown);
  const heights = shown.map((value) => Math.round((Math.max(0, value) / top) * (bars.length - 1)));
  return heights.map((height) => bars[height] ?? "").join("");
}
