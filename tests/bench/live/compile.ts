import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Compiler } from "@atoll/live";
import { transform as swc } from "@swc/core";
import { transform as esbuild } from "esbuild";
import type { Comparison } from "../benchmark.ts";
import { percentile } from "../statistics.ts";
import { GeneratedApp } from "./generated-app.ts";

const allowedOneMs = 50;

/** A thousand modules from nothing, and then one that changed. The rivals only take the types off. */
export const compile: Comparison = {
  name: "live.compile",
  title: "1,000 modules compiled without a cache, in processes of their own; rival: esbuild's transform",
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: `one changed module ≤ ${allowedOneMs} ms` },
  rounds: { full: 8, quick: 2 },
  async run(lab, rounds) {
    const app = await GeneratedApp.write(`${lab.dir}/app`, 1_000);
    const names = ["src/app.ts"];
    for (let at = 0; at < 99; at += 1) names.push(`src/s${at}.ts`);
    for (let at = 0; at < 900; at += 1) names.push(`src/lib/m${at}.ts`);
    const sources = new Map<string, string>();
    for (const name of names) sources.set(name, await readFile(join(app.folder, name), "utf8"));
    await using compiler = new Compiler({ cache: false });
    const ours: number[] = [];
    const one: number[] = [];
    const rival: number[] = [];
    const swcTimes: number[] = [];
    const time = async (into: number[], isCounted: boolean, work: () => Promise<unknown>): Promise<void> => {
      await lab.quiet.wait();
      const startedAt = performance.now();
      await work();
      if (isCounted) into.push(performance.now() - startedAt);
    };
    for (let round = 0; round <= rounds; round += 1) {
      lab.progress.report(`round ${round} of ${rounds}`);
      // The first round starts programs and loads code.
      const isCounted = round > 0;
      let known = new Map();
      await time(ours, isCounted, async () => {
        const { ok, artifacts } = await compiler.compile(sources);
        if (!ok) throw new Error("The generated app does not compile");
        known = new Map(artifacts.map((artifact) => [artifact.module, artifact]));
      });
      const changed = new Map(sources).set("src/s3.ts", `${sources.get("src/s3.ts")}\n// ${round}`);
      await time(one, isCounted, () => compiler.compile(changed, known));
      await time(rival, isCounted, () =>
        Promise.all([...sources.values()].map((source) => esbuild(source, { loader: "ts", sourcemap: true }))),
      );
      const swcOptions = { jsc: { parser: { syntax: "typescript" }, target: "es2022" }, sourceMaps: true } as const;
      await time(swcTimes, isCounted, () =>
        Promise.all([...sources.values()].map((source) => swc(source, swcOptions))),
      );
    }
    const describe = (times: readonly number[]): string =>
      `p50 ${percentile(times, 0.5).toFixed(1)}, p95 ${percentile(times, 0.95).toFixed(1)} ms`;
    return {
      ours,
      rival,
      checks: [
        {
          text: `one changed of 1,000: ${describe(one)}, n = ${one.length}; ≤ ${allowedOneMs} ms allowed`,
          isMet: percentile(one, 0.5) <= allowedOneMs,
        },
      ],
      notes: [`swc: ${describe(swcTimes)}`],
    };
  },
};
