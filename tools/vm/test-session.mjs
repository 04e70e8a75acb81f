import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { repositoryRoot } from "../setup/paths.mjs";
import { dataDir, exchangeDir } from "./machine.mjs";

/** Whatever makes, reads or waits for groups, and a look at what they leave behind. */
const tested = [
  "tests/integration/cgroups.test.ts",
  "tests/integration/limits.test.ts",
  "tests/integration/deadline.test.ts",
  "tests/aftermath/nothing-left.test.ts",
];

/** @typedef {import("../test-summary.mjs").Summary} Summary */

/**
 * What the machine's shell runs: vitest, with nothing of the host's environment.
 *
 * @param {readonly string[]} args for vitest; files among them are tested instead of ours
 * @param {string} [exchange] where the results go
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
  return [
    'echo "Linux $(uname -r) with cgroup v2: $(cat /sys/fs/cgroup/cgroup.controllers)"',
    `mkdir -p ${dataDir}/tmp`,
    `cd ${quoted(repositoryRoot)}`,
    // Through a pipe it prints plain lines: what it would have a terminal draw over stays in a log.
    `{ ${["env", "-i", ...environment, ...program].map(quoted).join(" ")}; echo $? > ${exchange}/exit-code; } 2>&1 | cat`,
  ].join("\n");
}

/**
 * As one word of a shell, whatever is in it.
 *
 * @param {string} word
 */
export function quoted(word) {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {string} exchange
 * @returns {Promise<{ exitCode: number, summary: Summary | undefined }>} a machine that left nothing has failed
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
