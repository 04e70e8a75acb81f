import { access } from "node:fs/promises";
import { join, resolve } from "node:path";
import { repositoryRoot } from "./paths.mjs";
import { run, tail } from "./run.mjs";

/**
 * Installs the git hooks of lefthook.yml. A failure is reported and does not fail set-up.
 *
 * @param {import("./report.mjs").Report} report
 */
export async function installHooks(report) {
  const isUnwanted = [process.env["CI"], process.env["LEFTHOOK"] === "0" ? "1" : ""].some(
    (value) => value !== undefined && !["", "0", "false"].includes(value),
  );
  if (isUnwanted || !(await exists(join(repositoryRoot, ".git")))) return;
  const where = await run("git", ["rev-parse", "--git-path", "hooks/pre-push"], { cwd: repositoryRoot });
  if (where.exitCode !== 0 || (await exists(resolve(repositoryRoot, where.stdout.trim())))) return;
  const lefthook = join(repositoryRoot, "node_modules", ".bin", "lefthook");
  const { exitCode, output } = await run(lefthook, ["install"], { cwd: repositoryRoot });
  if (exitCode === 0) report.ok("git hooks");
  else report.say(`Git hooks are not installed: ${tail(output, 3)}`);
}

/** @param {string} path */
async function exists(path) {
  return access(path).then(
    () => true,
    () => false,
  );
}
