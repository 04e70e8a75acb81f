import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pollUntil } from "@atoll/host";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DeadlineFile } from "../../src/drivers/deadline-file.ts";
import { SentrySlack } from "../../src/drivers/gvisor/sentry-slack.ts";
import { RunLayout } from "../../src/store/layout.ts";
import { uptimeMs } from "../../src/support/uptime.ts";
import { caught } from "../support/caught.ts";
import { buildTimeoutMs, guestProgram, SanitizerReports, testTimeoutMs } from "./guest-program.ts";
import { ownUser } from "./native-guest.ts";
import { launchNative } from "./native-launcher.ts";

const patienceMs = 60_000;
const counting = ["/bin/sh", "-c", 'i=0; while :; do i=$((i+1)); echo $i > "$0/count"; done'];

/** The directories where this machine has a freezer: the older hierarchy, the unified one, or both. */
const hierarchies = readFileSync("/proc/self/mounts", "utf8")
  .split("\n")
  .map((line) => line.split(" "))
  .filter(([, , type, options]) => type === "cgroup2" || options?.split(",").includes("freezer"))
  .map(([, path = "", type]) => ({ path, type }));

let program: string;
beforeAll(async () => {
  program = await guestProgram("sanitized");
}, buildTimeoutMs);

let base: string;
let run: RunLayout;
let deadline: DeadlineFile;
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "atoll-deadline-"));
  run = new RunLayout(join(base, "run"));
  mkdirSync(run.dir);
  deadline = new DeadlineFile(run);
});
afterEach(() => {
  rmSync(base, { recursive: true, force: true });
});

class Freezer {
  readonly group: string;

  constructor(mount: string) {
    const name = `atoll-native-${process.pid}`;
    this.group = join(mount, name, "run");
    mkdirSync(this.group, { recursive: true });
  }

  get isFrozen(): boolean {
    const v1 = join(this.group, "freezer.state");
    if (existsSync(v1)) return readFileSync(v1, "utf8").trim() === "FROZEN";
    return /^frozen 1$/m.test(readFileSync(join(this.group, "cgroup.events"), "utf8"));
  }

  get members(): string[] {
    return readFileSync(join(this.group, "cgroup.procs"), "utf8").trim().split("\n").filter(Boolean);
  }

  until(isFrozen: boolean): Promise<boolean> {
    return pollUntil(() => this.isFrozen === isFrozen, { deadlineMs: patienceMs });
  }

  async remove(): Promise<void> {
    await pollUntil(() => this.members.length === 0, { deadlineMs: patienceMs });
    rmdirSync(this.group);
    rmdirSync(dirname(this.group));
  }
}

function count(): number {
  return Number(readFileSync(join(base, "count"), "utf8"));
}

async function counts(): Promise<boolean> {
  const before = existsSync(join(base, "count")) ? count() : 0;
  return pollUntil(() => existsSync(join(base, "count")) && count() > before, { deadlineMs: patienceMs });
}

test("there is a freezer to be tested with", () => {
  expect(hierarchies).not.toEqual([]);
});

describe.for(hierarchies)("a deadline on $type", { timeout: testTimeoutMs }, ({ path }) => {
  beforeEach((context) => {
    context.skip(ownUser !== "0", "only root can make cgroups");
  });

  async function withLauncher(work: (freezer: Freezer, pid: number) => Promise<void>): Promise<void> {
    using reports = new SanitizerReports();
    const freezer = new Freezer(path);
    const words = ["--dir", run.dir, "--cgroup", freezer.group, "--freezer", freezer.group, "--", ...counting, base];
    const { child, steps, exitCode } = launchNative(program, words, reports);
    try {
      expect(await steps).toMatch(/program \d+\n$/);
      await work(freezer, child.pid ?? 0);
    } finally {
      await deadline.order({ kind: "never" });
      child.kill("SIGTERM");
      expect(await exitCode).toBe(128 + 9);
      await freezer.remove();
    }
    expect(reports.read()).toBe("");
  }

  test("without a deadline the launcher stays in its group", async () => {
    await withLauncher(async (freezer, pid) => {
      expect(await counts()).toBe(true);
      expect(freezer.members).toContain(String(pid));
      expect(await deadline.read()).toEqual({ kind: "never" });
    });
  });

  test("everything is frozen at the deadline, and continues with a later one", async () => {
    await withLauncher(async (freezer, pid) => {
      await deadline.order({ kind: "until", uptimeMs: uptimeMs() + 10 * patienceMs });
      expect(await counts()).toBe(true);
      expect(freezer.members).not.toContain(String(pid));
      await deadline.order({ kind: "until", uptimeMs: uptimeMs() + 300 });
      expect(await freezer.until(true)).toBe(true);
      const stopped = count();
      await deadline.order({ kind: "until", uptimeMs: uptimeMs() - 1 });
      expect([count(), freezer.isFrozen]).toEqual([stopped, true]);
      await deadline.order({ kind: "until", uptimeMs: uptimeMs() + 10 * patienceMs });
      expect(await freezer.until(false)).toBe(true);
      expect(await counts()).toBe(true);
      await deadline.order({ kind: "still", uptimeMs: 1 });
      expect(await counts()).toBe(true);
      expect(await deadline.read()).toEqual({ kind: "still", uptimeMs: 1 });
    });
  });

  test("a deadline that cannot be read freezes everything", async () => {
    await withLauncher(async (freezer) => {
      writeFileSync(run.deadlineFile, "until tomorrow", { flag: "r+" });
      writeFileSync(run.wakeFifo, "\n");
      expect(await freezer.until(true)).toBe(true);
    });
  });

  test("the launcher removes timer slack when the server is gone, unless it is of an older build", async () => {
    await withLauncher(async (freezer, launcherPid) => {
      const pid = Number(freezer.members.find((member) => member !== String(launcherPid)));
      const slackNs = (): number => Number(readFileSync(`/proc/${pid}/timerslack_ns`, "latin1"));
      const giveSlack = (): SentrySlack => {
        const slack = new SentrySlack({ pid, cgroupDir: freezer.group, fifo: run.slackFifo });
        slack.allow(250);
        expect(slackNs()).toBe(250_000_000);
        return slack;
      };
      for (let server = 0; server < 2; server += 1) {
        // When a server dies, the kernel closes the FIFO in the same way.
        giveSlack()[Symbol.dispose]();
        expect(await pollUntil(() => slackNs() === 50_000, { deadlineMs: patienceMs })).toBe(true);
      }
      rmSync(run.slackFifo);
      giveSlack()[Symbol.dispose]();
      expect(slackNs()).toBe(250_000_000);
    });
  });

  test("the deadline applies from the program's first moment, and after it no program is started", async () => {
    await deadline.prepare(uptimeMs() + 10 * patienceMs);
    await withLauncher(async (freezer, pid) => {
      expect(freezer.members).not.toContain(String(pid));
      expect(freezer.members).toHaveLength(1);
      await deadline.order({ kind: "until", uptimeMs: 1 });
      expect(await freezer.until(true)).toBe(true);
    });
    rmSync(run.dir, { recursive: true });
    mkdirSync(run.dir);
    await deadline.prepare(uptimeMs());
    using reports = new SanitizerReports();
    const freezer = new Freezer(path);
    const words = ["--dir", run.dir, "--cgroup", freezer.group, "--freezer", freezer.group, "--", ...counting, base];
    const { steps, exitCode } = launchNative(program, words, reports);
    expect(await steps).toMatch(/error deadline \d+ start after the deadline/);
    expect(await exitCode).toBe(125);
    await freezer.remove();
  });
});

test(
  "a launcher that is gone and one that knows of no deadlines give different errors",
  { timeout: testTimeoutMs },
  async () => {
    const error = await caught(deadline.order({ kind: "never" }));
    expect(isSandboxError(error, "unsupported")).toBe(true);
    expect(await deadline.read()).toEqual({ kind: "never" });
    using reports = new SanitizerReports();
    const { exitCode } = launchNative(program, ["--dir", run.dir, "--", "/bin/true"], reports);
    expect(await exitCode).toBe(0);
    expect(isSandboxError(await caught(deadline.order({ kind: "never" })), "sandbox_ended")).toBe(true);
  },
);
