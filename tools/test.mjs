#!/usr/bin/env node
/**
 * Sets up, runs every test project and prints the counts in the last line. Arguments are passed to vitest, except
 * `--long`: with it, tests try all combinations, which takes longer.
 */
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { repositoryRoot } from "./setup/paths.mjs";
import { countLine, isSuccess, skippedLines } from "./test-summary.mjs";

/** @typedef {import("./test-summary.mjs").Summary} Summary */

/**
 * Runs Node on a script with our terminal as its own. An interrupt reaches both processes, so we wait for the child to
 * finish its cleanup.
 *
 * @param {readonly string[]} args
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<number>} the script's exit code; 1 if a signal ended it
 */
function runNode(args, env = process.env) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: repositoryRoot, env, stdio: "inherit" });
    const ignore = () => {};
    const forward = () => child.kill("SIGTERM");
    process.on("SIGINT", ignore);
    process.on("SIGTERM", forward);
    child.on("error", reject);
    child.on("close", (exitCode) => {
      process.off("SIGINT", ignore);
      process.off("SIGTERM", forward);
      resolve(exitCode ?? 1);
    });
  });
}

/**
 * @param {readonly string[]} args
 * @returns {Promise<{ exitCode: number, summary: Summary | undefined }>}
 */
async function runVitest(args) {
  const dir = await mkdtemp(join(tmpdir(), "atoll-test-"));
  try {
    const summaryPath = join(dir, "summary.json");
    const vitest = join(repositoryRoot, "node_modules", "vitest", "vitest.mjs");
    const own = ["test-progress.mjs", "test-reporter.mjs"].map((name) => fileURLToPath(new URL(name, import.meta.url)));
    const reporters = ["minimal", ...own].map((reporter) => `--reporter=${reporter}`);
    const exitCode = await runNode([vitest, "run", "--silent=passed-only", ...reporters, ...args], {
      ...process.env,
      ATOLL_TEST_SUMMARY: summaryPath,
    });
    const text = await readFile(summaryPath, "utf8").catch(() => undefined);
    return { exitCode, summary: text === undefined ? undefined : JSON.parse(text) };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

async function main() {
  /** @type {Summary} */
  const nothing = { passed: 0, failed: 0, skipped: [] };
  if ((await runNode([join(repositoryRoot, "tools", "setup.mjs"), "--quiet", "--for-tests"])) !== 0) {
    console.log("\nThe tests did not run: set-up is incomplete\n");
    console.log(countLine(nothing));
    process.exitCode = 1;
    return;
  }
  const given = process.argv.slice(2);
  const args = given.filter((arg) => arg !== "--long");
  if (args.length < given.length) process.env["ATOLL_TEST_LONG"] = "1";
  const { exitCode, summary } = await runVitest(args);
  if (summary === undefined) console.log("\nThe test run ended without a result");
  // With a name pattern nearly every test is skipped on purpose.
  const isFiltered = args.some((arg) => /^(-t|--testNamePattern)/.test(arg));
  if (!isFiltered) for (const line of skippedLines(summary ?? nothing)) console.log(line);
  console.log(countLine(summary ?? nothing));
  process.exitCode = isSuccess(exitCode, summary) ? 0 : 1;
}

await main();
