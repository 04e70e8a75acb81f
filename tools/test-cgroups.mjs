#!/usr/bin/env node
/**
 * Runs the tests of limits on a kernel that has cgroups of version 2 and nothing else, in a machine that is made for it and removed. Arguments go to
 * vitest; files among them are tested instead of ours.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { repositoryRoot } from "./setup/paths.mjs";
import { createReport } from "./setup/report.mjs";
import { countLine, isSuccess, skippedLines } from "./test-summary.mjs";
import { fetchKernel } from "./vm/kernel.mjs";
import { dataDir, exchangeDir, runInMachine } from "./vm/machine.mjs";
import { installPrograms } from "./vm/packages.mjs";

/** Emulated, the tests take about ten times as long as on the host. */
const deadlineMs = 90 * 60_000;

/** Whatever makes, reads or waits for groups, and a look at what they leave behind. */
const tested = [
  "tests/integration/cgroups.test.ts",
  "tests/integration/limits.test.ts",
  "tests/integration/deadline.test.ts",
  "tests/aftermath/nothing-left.test.ts",
];

/** @typedef {import("./test-summary.mjs").Summary} Summary */

/** @param {readonly string[]} args */
function sessionScript(args) {
  const files = args.some((arg) => arg.endsWith(".test.ts")) ? [] : tested;
  const reporter = fileURLToPath(new URL("test-reporter.mjs", import.meta.url));
  const vitest = ["run", "--reporter=verbose", `--reporter=${reporter}`, ...files, ...args];
  const settings = {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: process.env["HOME"] ?? "/root",
    TMPDIR: `${dataDir}/tmp`,
    NO_COLOR: "1",
    ATOLL_TEST_CGROUPS: "2",
    ATOLL_TEST_PATIENCE: "10",
    ATOLL_TEST_ROOT: `${dataDir}/test`,
    ATOLL_TEST_SUMMARY: `${exchangeDir}/summary.json`,
  };
  const environment = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const program = [process.execPath, join(repositoryRoot, "node_modules", "vitest", "vitest.mjs"), ...vitest];
  return [
    'echo "Linux $(uname -r) with cgroup v2: $(cat /sys/fs/cgroup/cgroup.controllers)"',
    `mkdir -p ${dataDir}/tmp`,
    `cd ${quoted(repositoryRoot)}`,
    // Through a pipe it prints plain lines: what it would have a terminal draw over stays in a log.
    `{ ${["env", "-i", ...environment, ...program].map(quoted).join(" ")}; echo $? > ${exchangeDir}/exit-code; } 2>&1 | cat`,
  ].join("\n");
}

/** @param {string} word */
function quoted(word) {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {string} exchange
 * @returns {Promise<{ exitCode: number, summary: Summary | undefined }>}
 */
async function readResult(exchange) {
  const [code, summary] = await Promise.all(
    ["exit-code", "summary.json"].map((name) => readFile(join(exchange, name), "utf8").catch(() => undefined)),
  );
  return {
    exitCode: code === undefined ? 1 : Number(code),
    summary: summary === undefined ? undefined : JSON.parse(summary),
  };
}

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
    "Booting the machine. Everything in it is emulated: the first test starts after a minute or two, and all of them take about twenty",
  );
  const args = process.argv.slice(2);
  const session = {
    script: sessionScript(args),
    // No controller is left to version 1.
    kernelArguments: "cgroup_no_v1=all",
    deadlineMs,
    signal: interrupt.signal,
  };
  const { exitCode, summary } = await runInMachine(kernel, session, readResult);
  /** @type {Summary} */
  const nothing = { passed: 0, failed: 0, skipped: [] };
  if (summary === undefined) console.log("\nThe test run ended without a result");
  // With a name pattern nearly everything is left out, on purpose.
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
