import { constants } from "node:fs";
import { access, readFile, statfs } from "node:fs/promises";
import { release } from "node:os";
import { dirname, resolve } from "node:path";
import { detectCgroups, hasErrno, messageOf, run } from "@atoll/host";
import { isSandboxError } from "@atoll/protocol";
import { protocolConstants } from "../guest/frames.ts";
import { findProgram } from "./find-program.ts";
import { type Finding, missing, ok, warning } from "./finding.ts";
import {
  judgeCapabilities,
  judgeDisk,
  judgeKernel,
  judgeNode,
  judgeOpenFiles,
  judgeOverlay,
  judgePipes,
} from "./machine-rules.ts";
import { detectRunsc, installRunsc, minimumRunscDate } from "./runsc-features.ts";

const everything = "all sandboxes";
const versionTimeoutMs = 10_000;

/** Checks that only read a file. */
export const kernelChecks: readonly (() => Promise<Finding>)[] = [
  async () => judgeKernel(process.platform, release()),
  async () => judgeNode(process.versions.node),
  async () => judgeCapabilities(await readFile("/proc/self/status", "utf8")),
  async () => judgeOverlay(await readFile("/proc/filesystems", "utf8")),
  async () => judgePipes(await readFile("/proc/sys/fs/pipe-max-size", "utf8")),
  async () => judgeOpenFiles(await readFile("/proc/self/limits", "utf8")),
];

export async function checkDisk(dataDir: string): Promise<Finding> {
  const path = await nearestExisting(resolve(dataDir));
  const { type, bavail, bsize, ffree, files } = await statfs(path);
  return judgeDisk({ path, type, freeBytes: bavail * bsize, freeInodes: ffree, totalInodes: files });
}

async function nearestExisting(path: string): Promise<string> {
  try {
    await access(path);
    return path;
  } catch (error) {
    if (!hasErrno(error, "ENOENT", "ENOTDIR") || path === "/") throw error;
    return nearestExisting(dirname(path));
  }
}

export async function checkCgroups(): Promise<Finding> {
  const name = "cgroups";
  const tree = await detectCgroups();
  if (tree === undefined) {
    return missing(name, {
      found: "no memory and cpu controllers",
      needs: "cgroup v2, or v1 with memory and cpu",
      fix: "mount -t cgroup2 none /sys/fs/cgroup",
      affects: everything,
    });
  }
  const canWrite = await Promise.all(
    tree.roots.map((path) =>
      access(path, constants.W_OK).then(
        () => true,
        () => false,
      ),
    ),
  );
  if (canWrite.every(Boolean)) return ok(name, `v${tree.version}`, everything);
  return missing(name, {
    found: `v${tree.version}, not writable`,
    needs: "permission to make groups",
    fix: "Run as root; in a container, mount /sys/fs/cgroup for writing.",
    affects: everything,
  });
}

export async function checkRunsc(path: string | undefined): Promise<Finding> {
  try {
    const runsc = await detectRunsc(path);
    return ok("runsc", `${runsc.version} at ${runsc.path}, ${runsc.platforms.join(" and ")}`, "gVisor sandboxes");
  } catch (error) {
    if (!isSandboxError(error, "unsupported")) throw error;
    return missing("runsc", {
      found: error.message,
      needs: `runsc of ${minimumRunscDate} or newer`,
      fix: installRunsc,
      affects: "gVisor sandboxes",
    });
  }
}

export async function checkGuest(path: string, signal: AbortSignal): Promise<Finding> {
  const name = "guest program";
  const problem = {
    needs: `version ${protocolConstants.VERSION} at ${path}`,
    fix: "npm run setup",
    affects: everything,
  };
  try {
    const { exitCode, stdout } = await run(path, ["--version"], { signal, timeoutMs: versionTimeoutMs });
    const version = stdout.trim();
    if (exitCode === 0 && version === String(protocolConstants.VERSION))
      return ok(name, `version ${version}`, everything);
    return missing(name, { found: exitCode === 0 ? `version ${version}` : "a program that does not run", ...problem });
  } catch (error) {
    if (!isSandboxError(error, "spawn_failed") && !isSandboxError(error, "timed_out")) throw error;
    return missing(name, { found: error.message, ...problem });
  }
}

const programs = [
  { name: "find", isNeeded: true, affects: "the template host", packageName: "findutils" },
  { name: "mknod", isNeeded: true, affects: "the template host", packageName: "coreutils" },
  { name: "sync", isNeeded: true, affects: "templates", packageName: "coreutils" },
  { name: "xz", isNeeded: false, affects: "templates from archives compressed with xz", packageName: "xz-utils" },
  { name: "zstd", isNeeded: false, affects: "templates from archives compressed with zstd", packageName: "zstd" },
  { name: "bzip2", isNeeded: false, affects: "templates from archives compressed with bzip2", packageName: "bzip2" },
] as const;

export async function checkPrograms(): Promise<Finding[]> {
  const found = await Promise.all(
    programs.map(async (program) => ({ ...program, path: await findProgram(program.name) })),
  );
  const absent = found.filter(({ path }) => path === undefined);
  const present = found.filter(({ path }) => path !== undefined).map(({ name }) => name);
  return [
    ok("programs", present.join(", "), "templates"),
    ...absent.map(({ name, affects, isNeeded, packageName }) =>
      (isNeeded ? missing : warning)(name, {
        found: "not installed",
        needs: name,
        fix: `apt-get install ${packageName}`,
        affects,
      }),
    ),
  ];
}

/** A leftover takes space and memory, and disappears when a server opens the data directory. */
export async function checkLeftovers(find: () => Promise<{ what: string }[]>): Promise<Finding> {
  const name = "leftovers";
  const affects = "memory and disk that nothing uses";
  const found = await find().catch((error: unknown) => messageOf(error));
  if (typeof found !== "string" && found.length === 0) return ok(name, "none of ended sandboxes", affects);
  const listed = typeof found === "string" ? found : found.slice(0, 5).map(({ what }) => what);
  const more = typeof found === "string" || found.length <= 5 ? "" : ` and ${found.length - 5} more`;
  return warning(name, {
    found: typeof listed === "string" ? `cannot be looked for: ${listed}` : `${listed.join(", ")}${more}`,
    needs: "nothing that belongs to no sandbox",
    fix: "Restart the server, which removes them; what stays is in use by something else.",
    affects,
  });
}

export async function checkStart(probeStart: () => Promise<void>): Promise<Finding> {
  const name = "a first sandbox";
  try {
    await probeStart();
    return ok(name, "starts and answers", "gVisor sandboxes");
  } catch (error) {
    return missing(name, {
      found: error instanceof Error ? error.message : String(error),
      needs: "a sandbox that starts and answers",
      fix:
        (isSandboxError(error) ? error.suggestion : undefined) ??
        "See the message; details.stderr of the error has the runtime's output.",
      affects: "gVisor sandboxes",
    });
  }
}
