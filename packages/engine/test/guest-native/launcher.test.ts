import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { buildTimeoutMs, guestProgram, SanitizerReports, testTimeoutMs } from "./guest-program.ts";
import { ownUser } from "./native-guest.ts";
import { launchNative, type NativeLauncher } from "./native-launcher.ts";

let program: string;
beforeAll(async () => {
  program = await guestProgram("sanitized");
}, buildTimeoutMs);

let base: string;
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "atoll-launcher-"));
  for (const name of ["run", "root", "lower", "upper", "work", "volume"]) mkdirSync(join(base, name));
});
afterEach(() => {
  rmSync(base, { recursive: true, force: true });
});

function launch(args: readonly string[], reports: SanitizerReports, stdin?: "pipe"): NativeLauncher {
  return launchNative(program, ["--dir", `${base}/run`, ...args], reports, stdin);
}

async function launchToEnd(...args: string[]): Promise<{ steps: string[]; exitCode: number | null; stderr: string }> {
  using reports = new SanitizerReports();
  const { steps, exitCode } = launch(args, reports);
  const lines = (await steps)
    .replace(/^program \d+$/m, "program PID")
    .trimEnd()
    .split("\n");
  const code = await exitCode;
  expect(reports.read()).toBe("");
  const stderr = existsSync(`${base}/run/stderr`) ? readFileSync(`${base}/run/stderr`, "utf8") : "";
  return { steps: lines, exitCode: code, stderr };
}

const exitFile = (): string => readFileSync(`${base}/run/exit`, "utf8");

describe("usage", { timeout: testTimeoutMs }, () => {
  test.for([
    [["--version"], 0, "1\n"],
    [[], 2, ""],
    [["launch"], 125, ""],
    [["launch", "--dir"], 125, ""],
  ] as const)("%j exits with %i", async ([args, code, output]) => {
    using reports = new SanitizerReports();
    const child = spawn(program, args, {
      stdio: ["ignore", "pipe", "ignore"],
      env: { ...process.env, ...reports.environment },
    });
    const [said, [exitCode]] = await Promise.all([text(child.stdout), once(child, "exit")]);
    expect([exitCode, said]).toEqual([code, output]);
    expect(reports.read()).toBe("");
  });
});

describe("the launcher", { timeout: testTimeoutMs }, () => {
  beforeEach((context) => {
    context.skip(ownUser !== "0", "only root can mount");
  });

  test("reports each step, and how the program ended", async () => {
    const result = await launchToEnd("--", "/bin/sh", "-c", "echo said >&2; exit 37");
    expect(result).toEqual({ steps: ["fifos", "cgroup", "mounts", "program PID"], exitCode: 37, stderr: "said\n" });
    expect(exitFile()).toBe("exit 37\n");
    expect(statSync(`${base}/run/in`).isFIFO()).toBe(true);
    expect(statSync(`${base}/run/out`).mode & 0o7777).toBe(0o600);
  });

  test("a signal that ends the program is reported as a signal", async () => {
    expect((await launchToEnd("--", "/bin/sh", "-c", "kill -TERM $$")).exitCode).toBe(128 + 15);
    expect(exitFile()).toBe("signal 15\n");
  });

  test("the program leads a session, talks through the FIFOs, and inherits nothing else", async () => {
    const { stderr } = await launchToEnd(
      "--",
      "/bin/bash",
      "-c",
      "readlink /proc/$$/fd/* >&2; [ $(ps -o sid= -p $$) = $$ ] && grep SigIgn /proc/self/status >&2",
    );
    const lines = stderr.trimEnd().split("\n");
    expect(lines.slice(0, -1)).toEqual([`${base}/run/in`, `${base}/run/out`, `${base}/run/stderr`]);
    expect(lines.at(-1)).toMatch(/^SigIgn:\t0000000000000000$/);
  });

  test.for(["SIGTERM", "SIGINT"] as const)("%s kills the program", async (signal) => {
    using reports = new SanitizerReports();
    const { child, steps, exitCode } = launch(["--", "/bin/sleep", "60"], reports);
    await steps;
    child.kill(signal);
    expect(await exitCode).toBe(128 + 9);
    expect(exitFile()).toBe("signal 9\n");
  });

  test.for([
    [["--batch"], 3],
    [[], 0],
  ] as const)("with %j the program has scheduling policy %i", async ([options, policy]) => {
    const { exitCode } = await launchToEnd(...options, "--", "/usr/bin/awk", "{ exit $41 }", "/proc/self/stat");
    expect(exitCode).toBe(policy);
  });

  test.for([
    [["--no-attributes"], "ENOTSUP"],
    [[], "ENODATA"],
  ] as const)("with %j reading an extended attribute of an open file says %s", async ([options, errno]) => {
    const program = [
      "import errno, os, sys",
      "try: os.getxattr(os.open(sys.argv[1], os.O_RDONLY), 'user.none')",
      "except OSError as e: sys.stderr.write(errno.errorcode[e.errno])",
    ];
    const { stderr } = await launchToEnd(...options, "--", "/usr/bin/python3", "-c", program.join("\n"), base);
    expect(stderr).toBe(errno);
  });

  test("with --wait it mounts and starts nothing before a byte has come", async () => {
    using reports = new SanitizerReports();
    const { child, steps, exitCode } = launch(["--wait", "--", "/bin/sh", "-c", "exit 7"], reports, "pipe");
    const report = child.stdio[3];
    if (report === null || report === undefined) throw new Error("Descriptor 3 is no pipe");
    await once(report, "data");
    expect(child.exitCode).toBeNull();
    child.stdin?.end("\n");
    expect(await exitCode).toBe(7);
    expect(await steps).toMatch(/mounts\nprogram \d+\n$/);
    expect(reports.read()).toBe("");
  });

  test("with --wait and a closed stdin it starts nothing", async () => {
    const { steps, exitCode } = await launchToEnd("--wait", "--", "/bin/sh", "-c", "exit 7");
    expect(steps.slice(0, 2)).toEqual(["fifos", "cgroup"]);
    expect(steps[2]).toMatch(/^error wait /);
    expect(exitCode).toBe(125);
  });

  test("the program dies with the launcher", async () => {
    using reports = new SanitizerReports();
    const { child, steps, exitCode } = launch(["--", "/bin/sleep", "60"], reports);
    const pid = Number(/program (\d+)/.exec(await steps)?.[1]);
    child.kill("SIGKILL");
    await exitCode;
    await expect.poll(() => state(pid)).toMatch(/^[ZX]?$/);
  });

  test("mounts are made in order, seen by the program, and gone with it", async () => {
    writeFileSync(`${base}/lower/file`, "lower");
    mkdirSync(`${base}/lower/volume`);
    writeFileSync(`${base}/volume/in-volume`, "");
    const overlay = `lowerdir=${base}/lower,upperdir=${base}/upper,workdir=${base}/work`;
    const mounts = [
      "--overlay",
      `${base}/root`,
      overlay,
      "--bind",
      `${base}/volume`,
      `${base}/root/volume`,
      "--rbind-ro",
      "/etc",
      `${base}/root/etc`,
    ];
    const script = `cd ${base}/root && cat file >&2; ls volume >&2; echo x >new; echo x >etc/x`;
    // The target of a mount must exist.
    const failed = await launchToEnd(...mounts, "--", "/bin/sh", "-c", script);
    expect(failed.steps.at(-1)).toBe(`error mounts 2 ${base}/root/etc: No such file or directory`);
    mkdirSync(`${base}/lower/etc`);
    const { stderr } = await launchToEnd(...mounts, "--", "/bin/sh", "-c", script);
    expect(stderr).toMatch(/^lowerin-volume\n.*Read-only file system\n$/);
    expect(readFileSync(`${base}/upper/new`, "utf8")).toBe("x\n");
    expect(readFileSync("/proc/self/mounts", "utf8")).not.toContain(base);
  });

  test("a link in a target is refused, because a sandbox may have made it", async () => {
    symlinkSync("/usr", `${base}/root/link`);
    const result = await launchToEnd("--bind", `${base}/volume`, `${base}/root/link/bin`, "--", "/bin/true");
    expect(result.steps.at(-1)).toMatch(/^error mounts 40 /);
    expect(result.exitCode).toBe(125);
  });

  test.for([
    ["cgroup", ["--cgroup", "/nowhere", "--", "/bin/true"], /^error cgroup 2 /],
    ["program", ["--", "/nowhere/program"], /^error program 2 \/nowhere\/program: /],
    ["enter", ["--enter", "/nowhere", "name", "--", "/bin/true"], /^error enter 2 /],
  ] as const)("a failure at %s is reported", async ([, args, line]) => {
    const { steps, exitCode } = await launchToEnd(...args);
    expect(steps.at(-1)).toMatch(line);
    expect(exitCode).toBe(125);
    expect(existsSync(`${base}/run/exit`)).toBe(false);
  });
});

describe("--enter", { timeout: testTimeoutMs }, () => {
  beforeEach((context) => {
    context.skip(ownUser !== "0", "only root can mount");
  });

  test("the program is PID 1 of its own namespaces, with the usual devices and a loopback", async () => {
    for (const name of ["usr", "etc"]) mkdirSync(`${base}/lower/${name}`);
    for (const name of ["bin", "lib", "lib64", "sbin"]) symlinkSync(`usr/${name}`, `${base}/lower/${name}`);
    const script = [
      "echo $$",
      "hostname",
      "cat /proc/1/comm",
      "ls /dev | tr '\\n' ' '",
      "ls /sys /proc/self/fd/ | wc -l",
      "stat -c %a /tmp /dev/null",
      "cat /proc/net/dev | grep -c :",
      "grep -q 127.0.0.1 /proc/net/fib_trie && echo 1",
      "ls / | tr '\\n' ' '",
      "echo x >/dev/null && head -c 2 /dev/zero | wc -c",
    ].join("; echo; ");
    const { steps, exitCode, stderr } = await launchToEnd(
      "--overlay",
      `${base}/root`,
      `lowerdir=${base}/lower,upperdir=${base}/upper,workdir=${base}/work`,
      "--rbind-ro",
      "/usr",
      `${base}/root/usr`,
      "--enter",
      `${base}/root`,
      "inside",
      "--",
      "/bin/sh",
      "-c",
      `{ ${script}; } >&2; exit 5`,
    );
    expect(steps).toEqual(["fifos", "cgroup", "mounts", "enter", "program PID"]);
    expect(exitCode).toBe(5);
    const lines = stderr.split("\n").filter((line) => line !== "");
    expect(lines.slice(0, 3)).toEqual(["1", "inside", "sh"]);
    expect(lines[3]?.trim().split(" ")).toEqual([
      "fd",
      "full",
      "null",
      "ptmx",
      "pts",
      "random",
      "shm",
      "stderr",
      "stdin",
      "stdout",
      "tty",
      "urandom",
      "zero",
    ]);
    expect(lines.slice(5)).toEqual(["1777", "666", "1", "1", "bin dev etc lib lib64 proc sbin sys tmp usr ", "2"]);
  });
});

function state(pid: number): string {
  try {
    return /\) (\S)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1] ?? "";
  } catch {
    return "";
  }
}
