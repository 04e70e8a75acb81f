#!/usr/bin/env node
/**
 * Prepares a fresh clone: npm packages, system packages, the guest program, bundles of our own programs, git hooks. It
 * needs nothing but Node and npm. It checks before it acts, so a second run changes nothing and ends at once.
 */
import { parseArgs } from "node:util";
import { buildBundle, programNames } from "./bundles/build-bundle.mjs";
import { freshBundle } from "./bundles/fresh-bundle.mjs";
import { buildGuest, hasGuestSources, isGuestCurrent, linkGuest } from "./setup/guest.mjs";
import { installHooks } from "./setup/hooks.mjs";
import { withLock } from "./setup/lock.mjs";
import { areModulesCurrent, installModules } from "./setup/modules.mjs";
import { setupLockPath } from "./setup/paths.mjs";
import { createReport } from "./setup/report.mjs";
import { isRequired, missingOf, probeAll } from "./setup/requirements.mjs";
import { installSystemPackages } from "./setup/system-packages.mjs";
import { isNodeSupported, supportedNodeInWords } from "./setup/versions.mjs";

const usage = `Usage: npm run setup [-- options]

  --check      say what is there and what is missing, change nothing
  --npm-only   install the npm packages and stop there
  --for-tests  install also what nothing but tests need: shells, pytest, Chromium, docker, podman; about 800 MB
  --quiet      print only what is done or wrong
  --help       this text

Environment:
  ATOLL_CACHE_DIR   where built programs and the set-up lock are kept (default: XDG_CACHE_HOME, or ~/.cache)
  ATOLL_SKIP        comma-separated drivers to do without, for example "gvisor"`;

/** Another run of this program may install everything over a slow line for this long. */
const lockTimeoutMs = 15 * 60_000;

/**
 * @param {import("./setup/report.mjs").Report} report
 * @param {{ forTests: boolean }} purpose
 */
async function check(report, purpose) {
  const hasModules = await areModulesCurrent();
  report[hasModules ? "ok" : "problem"](hasModules ? "npm packages" : "npm packages: not installed or out of date");
  const probes = await probeAll(purpose);
  for (const { requirement, found, reason } of probes) {
    if (found !== undefined) report.ok(`${requirement.name}: ${found}`);
    else report.problem(`${requirement.name}: ${reason}\nWithout it: ${requirement.without}`);
  }
  const needsCompiler = probes.some(({ requirement, found }) => requirement.name === "cc" && found === undefined);
  const hasGuest = !(await hasGuestSources()) || (!needsCompiler && (await isGuestCurrent()));
  report[hasGuest ? "ok" : "problem"](hasGuest ? "guest program" : "guest program: not built");
  const isComplete = probes.every(({ requirement, found }) => found !== undefined || !isRequired(requirement));
  return hasModules && hasGuest && isComplete;
}

/** @param {import("./setup/report.mjs").Report} report */
async function prepareModules(report) {
  if (await areModulesCurrent()) return report.ok("npm packages");
  await withLock(setupLockPath(), { timeoutMs: lockTimeoutMs, report }, async () => {
    if (!(await areModulesCurrent())) await installModules(report);
  });
}

/**
 * @param {import("./setup/report.mjs").Report} report
 * @param {{ forTests: boolean }} purpose
 * @returns {Promise<boolean>} whether every required package is installed
 */
async function prepareSystem(report, purpose) {
  let probes = await probeAll(purpose);
  const { required, forTests } = missingOf(probes);
  if (required.length + forTests.length > 0) {
    probes = await withLock(setupLockPath(), { timeoutMs: lockTimeoutMs, report }, () =>
      installSystemPackages(report, purpose),
    );
  }
  let isComplete = true;
  for (const { requirement, found, reason } of probes) {
    if (found !== undefined) {
      report.ok(`${requirement.name}: ${found}`);
    } else if (isRequired(requirement)) {
      isComplete = false;
      report.problem(`${requirement.name}: ${reason}\nWithout it: ${requirement.without}`);
    } else if (requirement.isForTests === true) {
      report.say(`${requirement.name}: ${reason}, so ${requirement.without}`);
    } else {
      report.say(`${requirement.name}: left out, as ATOLL_SKIP asks. ${requirement.without}`);
    }
  }
  return isComplete;
}

/** @param {import("./setup/report.mjs").Report} report */
async function prepareGuest(report) {
  if (!(await hasGuestSources())) return report.ok("guest program: no sources in this checkout");
  if (await isGuestCurrent()) return report.ok("guest program");
  await withLock(setupLockPath(), { timeoutMs: lockTimeoutMs, report }, async () => {
    await report.step("Compiling the guest program", async () => linkGuest(await buildGuest()));
  });
}

/**
 * Builds the bundles. They only make our programs start sooner: without them the programs run from their sources.
 *
 * @param {import("./setup/report.mjs").Report} report
 */
async function prepareBundles(report) {
  const isStale = () => programNames.filter((name) => freshBundle(name) === undefined);
  if (isStale().length === 0) return report.ok("bundles");
  await withLock(setupLockPath(), { timeoutMs: lockTimeoutMs, report }, async () => {
    for (const name of isStale()) {
      await buildBundle(name).catch((error) => {
        report.ok(`bundles: ${name} runs from its sources, since it cannot be bundled: ${error.message}`);
      });
    }
  });
}

async function main() {
  const { values } = parseArgs({
    options: {
      check: { type: "boolean", default: false },
      "npm-only": { type: "boolean", default: false },
      "for-tests": { type: "boolean", default: false },
      quiet: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(usage);
    return;
  }
  const report = createReport({ isQuiet: values.quiet });
  if (!isNodeSupported(process.versions.node)) {
    report.problem(
      `Cannot set up on Node ${process.versions.node}: Atoll needs ${supportedNodeInWords}. ` +
        "Install one of these, from the distribution or from nodejs.org",
    );
    process.exitCode = 1;
    return;
  }
  const purpose = { forTests: values["for-tests"] };
  if (values.check) {
    if (!(await check(report, purpose))) process.exitCode = 1;
    return;
  }
  await prepareModules(report);
  if (values["npm-only"]) return;
  await installHooks(report);
  await prepareBundles(report);
  const isComplete = await prepareSystem(report, purpose);
  if (isComplete) await prepareGuest(report);
  if (isComplete) report.ok("Ready. Try: npm start");
  else process.exitCode = 1;
}

try {
  await main();
} catch (error) {
  console.error(`set-up: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
