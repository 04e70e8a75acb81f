#!/usr/bin/env node
/**
 * Runs the tests of limits on a kernel that has only cgroups of version 2, in a virtual machine that is made for it and
 * removed. Arguments are passed to vitest; test files among them replace the usual ones.
 */
import { createReport } from "./setup/report.mjs";
import { countLine, isSuccess, skippedLines } from "./test-summary.mjs";
import { fetchKernel } from "./vm/kernel.mjs";
import { runInMachine } from "./vm/machine.mjs";
import { installPrograms } from "./vm/packages.mjs";
import { readResult, testScript } from "./vm/test-session.mjs";

/** In an emulated machine the tests take about ten times as long as on the host. */
const deadlineMs = 90 * 60_000;

/** @typedef {import("./test-summary.mjs").Summary} Summary */

async function main() {
  if (process.arch !== "x64" || process.getuid?.() !== 0) {
    throw new Error("Cannot make the machine: it needs an x86-64 host, and root");
  }
  const interrupt = new AbortController();
  for (const name of /** @type {const} */ (["SIGINT", "SIGTERM"])) {
    process.once(name, () => interrupt.abort(new Error(`Stopped by ${name}`)));
  }
  const report = createReport({ isQuiet: false });
  await installPrograms(report);
  const kernel = await fetchKernel(report);
  report.say(
    "Booting the machine. All of it is emulated: the first test starts after a minute or two, " +
      "and all tests take about twenty minutes",
  );
  const args = process.argv.slice(2);
  const session = {
    script: testScript(args),
    // The kernel gives all controllers to version 2.
    kernelArguments: "cgroup_no_v1=all",
    deadlineMs,
    signal: interrupt.signal,
  };
  const { exitCode, summary } = await runInMachine(kernel, session, readResult);
  /** @type {Summary} */
  const nothing = { passed: 0, failed: 0, skipped: [] };
  if (summary === undefined) console.log("\nThe test run ended without a result");
  // With a name pattern nearly every test is skipped on purpose.
  const isFiltered = args.some((arg) => /^(-t|--testNamePattern)/.test(arg));
  if (!isFiltered) for (const line of skippedLines(summary ?? nothing)) console.log(line);
  console.log(countLine(summary ?? nothing));
  process.exitCode = isSuccess(exitCode, summary) ? 0 : 1;
}

try {
  await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
