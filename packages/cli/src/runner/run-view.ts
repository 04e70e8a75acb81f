import type { RunEvent, Verdict } from "@atoll/runner";
import type { Cli } from "../cli.ts";
import { formatDuration } from "../output/amount.ts";
import { LiveScreen } from "../output/live-screen.ts";
import { printable } from "../output/printable.ts";
import type { Tone } from "../output/style.ts";
import type { Column } from "../output/table.ts";
import { RunProgress, type ActiveInstance } from "./run-progress.ts";

const redrawMs = 200;

/** What a person, or a program, sees of a run while it goes on. */
export interface RunView extends Disposable {
  take(event: RunEvent): void;
}

/** Returns a table on a terminal, lines where output is piped, and events as JSON where those are asked for. */
export function openRunView(cli: Cli, jobs: number): RunView {
  if (cli.isJson) return new JsonView(cli);
  return cli.isTerminal ? new TableView(cli, jobs) : new LineView(cli);
}

function toneOfVerdict(verdict: Verdict): Tone {
  if (verdict === "resolved") return "good";
  return verdict === "partial" || verdict === "flaky" || verdict === "empty_patch" ? "busy" : "bad";
}

/** One event per line, without the output of commands, which is in the logs. */
class JsonView implements RunView {
  readonly #cli: Cli;

  constructor(cli: Cli) {
    this.#cli = cli;
  }

  take(event: RunEvent): void {
    if (event.type !== "command.output") this.#cli.stdout.write(`${JSON.stringify(event)}\n`);
  }

  [Symbol.dispose](): void {
    // Every line was written when it came.
  }
}

/** One line per stage and per verdict. */
class LineView implements RunView {
  readonly #cli: Cli;

  constructor(cli: Cli) {
    this.#cli = cli;
  }

  take(event: RunEvent): void {
    const line = lineOf(event);
    if (line !== undefined) this.#cli.stdout.write(`${line.map(printable).join("\t")}\n`);
  }

  [Symbol.dispose](): void {
    // Every line was written when it came.
  }
}

function lineOf(event: RunEvent): string[] | undefined {
  switch (event.type) {
    case "stage.end": {
      const took = `${(event.durationMs / 1_000).toFixed(1)}s`;
      return [event.instance, event.stage, event.status, took, ...(event.reason === undefined ? [] : [event.reason])];
    }
    case "fix.apply":
      return [event.instance, "fix", event.fix.id, event.fix.what];
    case "attempt.end":
      return [event.instance, event.kind, `seed ${event.seed}`, `${event.passed} passed`, `${event.failed} failed`];
    case "instance.end":
      return [event.instance, "verdict", event.report.verdict, event.report.reason];
    case "run.drain":
      return ["run", "drain", "what runs is finished, and nothing new is started"];
    case "run.start":
    case "instance.start":
    case "stage.start":
    case "command.start":
    case "command.output":
    case "command.end":
    case "sandbox.start":
    case "sandbox.remove":
    case "run.end":
      return undefined;
  }
}

/** A row per instance that is under way, and under it how far the run is. */
class TableView implements RunView {
  readonly #cli: Cli;
  readonly #progress: RunProgress;
  readonly #screen: LiveScreen;
  readonly #timer: NodeJS.Timeout;

  constructor(cli: Cli, jobs: number) {
    this.#cli = cli;
    this.#progress = new RunProgress({ jobs });
    this.#screen = new LiveScreen(cli.stdout);
    this.#timer = setInterval(() => this.#draw(), redrawMs).unref();
  }

  take(event: RunEvent): void {
    this.#progress.take(event);
    if (event.type === "instance.end") {
      const { verdict, reason } = event.report;
      this.#screen.draw("");
      this.#cli.stdout.write(
        `${this.#cli.style(toneOfVerdict(verdict), verdict)}  ${printable(event.instance)}  ${printable(reason)}\n`,
      );
      this.#draw();
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#screen.draw("");
    this.#screen[Symbol.dispose]();
  }

  #draw(): void {
    const table = this.#progress.active.length === 0 ? "" : this.#cli.renderTable(columns, this.#progress.active);
    this.#screen.draw(`${table}${summaryOf(this.#cli, this.#progress)}\n`);
  }
}

function summaryOf(cli: Cli, progress: RunProgress): string {
  const counts = progress.counts.map(([verdict, count]) => cli.style(toneOfVerdict(verdict), `${count} ${verdict}`));
  const { leftMs } = progress;
  return [
    `${progress.done} of ${progress.total} done`,
    ...counts,
    formatDuration(wholeSeconds(progress.elapsedMs)),
    ...(leftMs === undefined || leftMs === 0 ? [] : [`about ${formatDuration(wholeSeconds(leftMs))} left`]),
    ...(progress.isDraining ? [cli.style("busy", "draining: Ctrl-C again ends everything now")] : []),
  ].join(" · ");
}

const wholeSeconds = (ms: number): number => Math.ceil(ms / 1_000) * 1_000;

const columns: Column<ActiveInstance>[] = [
  { header: "#", cell: ({ slot }) => String(slot), align: "right" },
  { header: "INSTANCE", cell: ({ instance }) => instance },
  { header: "STAGE", cell: ({ stage }) => stage, tone: () => "busy" },
  {
    header: "ELAPSED",
    cell: ({ startedAtMs }) => formatDuration(wholeSeconds(Date.now() - startedAtMs)),
    align: "right",
  },
  { header: "LAST LINE", cell: ({ lastLine }) => lastLine, tone: () => "quiet" },
];
