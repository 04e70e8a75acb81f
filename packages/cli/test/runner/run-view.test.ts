import { PassThrough } from "node:stream";
import { stripVTControlCharacters } from "node:util";
import { InstanceReport, type RunEvent, type RunEventBody, type Verdict } from "@atoll/runner";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { Cli } from "../../src/cli.ts";
import { readEnvironment } from "../../src/environment.ts";
import { RunProgress } from "../../src/runner/run-progress.ts";
import { openRunView } from "../../src/runner/run-view.ts";

let seq = 0;
const event = (body: RunEventBody): RunEvent => ({ seq: (seq += 1), at: new Date(0).toISOString(), ...body });

const runStart = (...instances: string[]): RunEvent =>
  event({ type: "run.start", runId: "r", pid: 1, bootId: "b", instances, options: {} });
const begin = (instance: string): RunEvent => event({ type: "instance.start", instance, key: "k" });
const output = (instance: string, line: string): RunEvent =>
  event({ type: "command.output", instance, stage: "test", line });

function end(instance: string, verdict: Verdict, reason = "because"): RunEvent {
  const report = InstanceReport.parse({
    schemaVersion: 1,
    id: instance,
    repo: "o/n",
    model: "m",
    key: "k",
    verdict,
    reason,
    patchExists: true,
    patchApplied: true,
    stages: [],
    attempts: [],
    fixes: [],
    failToPass: { success: [], failure: [] },
    passToPass: { success: [], failure: [] },
    flakyTests: [],
    flagged: [],
    startedAt: "2026-01-01T00:00:00Z",
    durationMs: 1,
  });
  return event({ type: "instance.end", instance, key: "k", report });
}

describe("the progress of a run", () => {
  let nowMs = 0;
  let progress: RunProgress;

  beforeEach(() => {
    nowMs = 0;
    progress = new RunProgress({ jobs: 2, nowMs: () => nowMs });
    progress.take(runStart("a", "b", "c", "d"));
  });

  test("has the instances under way in slots, which the next ones take over", () => {
    progress.take(begin("a"));
    progress.take(begin("b"));
    progress.take(end("a", "resolved"));
    progress.take(begin("c"));
    expect(progress.active.map(({ slot, instance }) => [slot, instance])).toEqual([
      [1, "c"],
      [2, "b"],
    ]);
    expect(progress).toMatchObject({ total: 4, done: 1, counts: [["resolved", 1]] });
  });

  test("knows the stage and the line that was printed last", () => {
    progress.take(begin("a"));
    progress.take(event({ type: "stage.start", instance: "a", stage: "test" }));
    progress.take(output("a", "12 passed"));
    expect(progress.active).toEqual([expect.objectContaining({ stage: "test", lastLine: "12 passed" })]);
    progress.take(event({ type: "stage.start", instance: "a", stage: "grade" }));
    expect(progress.active).toEqual([expect.objectContaining({ stage: "grade", lastLine: "" })]);
  });

  test("estimates what is left from what was done, shared by the jobs", () => {
    expect(progress.leftMs).toBeUndefined();
    progress.take(begin("a"));
    nowMs = 10_000;
    progress.take(end("a", "unresolved"));
    // Three are left of ten seconds each, two at a time.
    expect(progress.leftMs).toBe(15_000);
    progress.take(begin("b"));
    nowMs = 14_000;
    expect(progress.leftMs).toBe(13_000);
    for (const instance of ["b", "c", "d"]) progress.take(end(instance, "resolved"));
    expect(progress.leftMs).toBe(0);
  });
});

describe("what is shown of a run", () => {
  let written: string;

  function makeCli({ isTerminal, json }: { isTerminal: boolean; json: boolean }): Cli {
    written = "";
    const stdout = new PassThrough();
    stdout.on("data", (data: Buffer) => {
      written += data.toString();
    });
    const stream = Object.assign(stdout, { isTTY: isTerminal, columns: 100, rows: 20 });
    const streams = { stdin: new PassThrough(), stdout: stream, stderr: new PassThrough() };
    const cli = new Cli(streams as unknown as ConstructorParameters<typeof Cli>[0], readEnvironment({ TERM: "xterm" }));
    cli.begin({ json });
    return cli;
  }

  test("is a line per stage and verdict where it is piped, which nothing in it can steer", () => {
    using view = openRunView(makeCli({ isTerminal: false, json: false }), 1);
    view.take(runStart("a"));
    view.take(begin("a"));
    view.take(output("a", "not shown"));
    view.take(
      event({
        type: "stage.end",
        instance: "a",
        stage: "apply",
        status: "failed",
        durationMs: 1_234,
        reason: "no\nhunk",
      }),
    );
    view.take(end("a", "apply_failed", "\u001b[2Jcleared"));
    expect(written).toBe("a\tapply\tfailed\t1.2s\tno\\nhunk\na\tverdict\tapply_failed\t\\x1b[2Jcleared\n");
  });

  test("is every event as JSON but the output of commands", () => {
    using view = openRunView(makeCli({ isTerminal: false, json: true }), 1);
    view.take(begin("a"));
    view.take(output("a", "not shown"));
    view.take(end("a", "resolved"));
    const types = written
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line) as RunEvent).type);
    expect(types).toEqual(["instance.start", "instance.end"]);
  });

  test("is a table on a terminal, with totals and the time that is left", () => {
    vi.useFakeTimers();
    try {
      {
        using view = openRunView(makeCli({ isTerminal: true, json: false }), 2);
        view.take(runStart("first", "second", "third"));
        view.take(begin("first"));
        view.take(begin("second"));
        view.take(event({ type: "stage.start", instance: "second", stage: "setup" }));
        view.take(output("second", "npm \u001b[31mis busy"));
        vi.advanceTimersByTime(60_000);
        view.take(end("first", "resolved", "All is well."));
        written = "";
        vi.advanceTimersByTime(1_000);
        const shown = stripVTControlCharacters(written);
        expect(shown).toContain("INSTANCE");
        expect(shown).toMatch(/2 {2}second +setup +1m 1s {2}npm \\x1b\[31mis busy/);
        expect(shown).toMatch(/1 of 3 done · 1 resolved · 1m 1s · about 30s left/);
        expect(shown).not.toContain("first");
      }
      // The cursor is visible again.
      expect(written.endsWith("\u001b[?25h")).toBe(true);
    } finally {
      vi.useRealTimers();
    }
  });
});
