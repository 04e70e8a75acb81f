import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { repositoryRoot } from "../setup/paths.mjs";
import { dataDir, exchangeDir } from "./machine.mjs";

/** The tests that create, read or wait for cgroups, and the one that looks for leftovers. */
const tested = [
  "tests/integration/cgroups.test.ts",
  "tests/integration/limits.test.ts",
  "tests/integration/deadline.test.ts",
  "tests/leftovers/nothing-left.test.ts",
];

/** @typedef {import("../test-summary.mjs").Summary} Summary */

/**
 * Returns the script for the machine's shell. It runs vitest with none of the host's environment.
 *
 * @param {readonly string[]} args are passed to vitest; test files among them replace the usual ones
 * @param {string} [exchange] the directory for the results
 */
export function testScript(args, exchange = exchangeDir) {
  const files = args.some((arg) => arg.endsWith(".test.ts")) ? [] : tested;
  const reporter = fileURLToPath(new URL("../test-reporter.mjs", import.meta.url));
  const vitest = ["run", "--reporter=verbose", `--reporter=${reporter}`, ...files, ...args];
  const settings = {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: process.env["HOME"] ?? "/root",
    TMPDIR: `${dataDir}/tmp`,
    NO_COLOR: "1",
    ATOLL_TEST_CGROUPS: "2",
    ATOLL_TEST_PATIENCE: "10",
    ATOLL_TEST_ROOT: `${dataDir}/test`,
    ATOLL_TEST_SUMMARY: `${exchange}/summary.json`,
  };
  const environment = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const program = [process.execPath, join(repositoryRoot, "node_modules", "vitest", "vitest.mjs"), ...vitest];
  const command = ["env", "-i", ...environment, ...program].map(quoted).join(" ");
  return [
    'echo "Linux $(uname -r) with cgroup v2: $(cat /sys/fs/cgroup/cgroup.controllers)"',
    `mkdir -p ${dataDir}/tmp`,
    `cd ${quoted(repositoryRoot)}`,
    // Through a pipe vitest prints plain lines; to a terminal it would redraw lines, and a log would keep each version.
    `{ ${command}; echo $? > ${exchange}/exit-code; } 2>&1 | cat`,
  ].join("\n");
}

/**
 * Quotes text as one word of a shell.
 *
 * @param {string} word
 */
export function quoted(word) {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {string} exchange
 * @returns {Promise<{ exitCode: number, summary: Summary | undefined }>} a machine that wrote nothing counts as failed
 */
export async function readResult(exchange) {
  const [code, summary] = await Promise.all(
    ["exit-code", "summary.json"].map((name) => readFile(join(exchange, name), "utf8").catch(() => undefined)),
  );
  return {
    exitCode: code === undefined ? 1 : Number(code),
    summary: summary === undefined ? undefined : JSON.parse(summary),
  };
}
