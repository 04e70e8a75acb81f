import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { scanModule } from "@atoll/guard";
import type { Trial } from "../benchmark.ts";
import { GeneratedApp } from "../live/generated-app.ts";
import { percentile } from "../statistics.ts";

const modules = 100;
/** One module in so many has something that needs a closer look. */
const suspiciousEach = 10;
const suspicious = `\nexport const late = () => setTimeout("work()", 1);
for (const key of ["a", "b"]) console.log(process.env[key], globalThis["ev" + "al"]);\n`;

/** What the scan adds to the load of an app in the process of the compiler, on one core. */
export const scan: Trial = {
  name: "guard.scan",
  title: `a static scan of ${modules} modules, of which every ${suspiciousEach}th has findings`,
  unit: "ms",
  better: "lower",
  bar: { of: "ours", is: "at most", value: 100 },
  rounds: { full: 30, quick: 5 },
  async attempt(bench, rounds) {
    const app = await GeneratedApp.write(`${bench.dir}/app`, modules);
    const names = ["src/app.ts"];
    for (let at = 0; at < 9; at += 1) names.push(`src/s${at}.ts`);
    for (let at = 0; at < modules - 10; at += 1) names.push(`src/lib/m${at}.ts`);
    const clean = await Promise.all(names.map((name) => readFile(join(app.folder, name), "utf8")));
    const some = clean.map((source, at) => (at % suspiciousEach === 0 ? source + suspicious : source));
    const all = clean.map((source) => source + suspicious);
    let found = 0;
    const time = (sources: readonly string[]): number => {
      const startedAt = performance.now();
      found = sources.reduce((sum, source, at) => sum + scanModule(names[at] ?? "", source).length, 0);
      return performance.now() - startedAt;
    };
    const ours: number[] = [];
    const worst: number[] = [];
    // The services of the app have loops without an end, which count as well.
    time(clean);
    const expected = found + (modules / suspiciousEach) * 3;
    let isComplete = true;
    for (let round = 0; round <= rounds; round += 1) {
      bench.signal.throwIfAborted();
      bench.progress.report(`round ${round} of ${rounds}`);
      const needed = time(some);
      isComplete &&= found === expected;
      const neededForAll = time(all);
      // The first round compiles the code of the scan.
      if (round === 0) continue;
      ours.push(needed);
      worst.push(neededForAll);
    }
    const kibibytes = Math.round(some.join("").length / 1024);
    return {
      ours,
      checks: [{ text: `${expected} findings in ${kibibytes} KiB`, isMet: isComplete }],
      notes: [`if all ${modules} modules had findings: p50 ${percentile(worst, 0.5).toFixed(1)} ms`],
    };
  },
};
