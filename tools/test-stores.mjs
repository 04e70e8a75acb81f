#!/usr/bin/env node
/**
 * Runs the contract of object stores against real servers: Ceph's gateway, which this program installs, starts and
 * removes, and the servers that `ATOLL_TEST_S3_*` or `ATOLL_TEST_GCS_*` name. Arguments are passed to vitest.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { repositoryRoot } from "./setup/paths.mjs";
import { installRadosgw } from "./stores/packages.mjs";
import { startRadosgw } from "./stores/radosgw.mjs";

/**
 * @param {Record<string, string>} settings
 * @returns {Promise<number>}
 */
async function runVitest(settings) {
  const vitest = join(repositoryRoot, "node_modules", "vitest", "vitest.mjs");
  const config = join(repositoryRoot, "tests", "stores", "vitest.config.ts");
  const args = [vitest, "run", "--config", config, ...process.argv.slice(2)];
  const child = spawn(process.execPath, args, {
    cwd: repositoryRoot,
    env: { ...process.env, ...settings },
    stdio: "inherit",
  });
  const [exitCode] = await once(child, "close");
  const missing = ["ENDPOINT", "BUCKET"].map((name) => `ATOLL_TEST_GCS_${name}`).filter((name) => !process.env[name]);
  if (missing.length > 0) console.log(`\nGCS: not run, ${missing.join(" and ")} not set`);
  return exitCode ?? 1;
}

// An interrupt reaches vitest, too. We wait for it, and then remove what we started.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => {});

if (process.env["ATOLL_TEST_S3_ENDPOINT"] === undefined) {
  await installRadosgw();
  const gateway = await startRadosgw();
  try {
    process.exitCode = await runVitest({
      ATOLL_TEST_S3_ENDPOINT: gateway.endpoint,
      ATOLL_TEST_S3_BUCKET: gateway.bucket,
      ATOLL_TEST_S3_KEY_ID: gateway.keyId,
      ATOLL_TEST_S3_SECRET: gateway.secret,
    });
  } finally {
    await gateway.stop();
  }
} else {
  process.exitCode = await runVitest({});
}
