import type { AppInfo, LiveEvent } from "@atoll/live";

/** One mistake that the person who edits the app has to see, until it is repaired. */
export interface Problem {
  title: string;
  /** The place in the source, with the lines around it. */
  frames: string[];
}

export interface LastReload {
  atMs: number;
  durationMs: number;
  generation: number;
  modules: readonly string[];
}

/** What `atoll app dev` shows, made from events. */
export class DevState {
  state: AppInfo["state"] = "initializing";
  generation = 1;
  lastReload: LastReload | undefined;
  /** Why the newest code does not run. */
  failure: Problem | undefined;
  /** What does not keep the code from running. */
  warnings: Problem[] = [];
  crash: Problem | undefined;
  rollback: string | undefined;

  take(event: LiveEvent): void {
    // oxlint-disable-next-line typescript/switch-exhaustiveness-check -- the others change nothing here
    switch (event.type) {
      case "app.state":
        this.state = event.state;
        if (event.state === "error") this.failure ??= { title: event.reason ?? "it cannot run", frames: [] };
        if (event.state === "running" && event.from === "starting") this.failure = undefined;
        return;
      case "compile.end":
        this.warnings = event.ok ? problemsOf(event.diagnostics) : [];
        return;
      case "reload.start":
        this.crash = undefined;
        this.rollback = undefined;
        return;
      case "reload.end": {
        const { generation, durationMs, modules } = event;
        this.lastReload = { atMs: Date.parse(event.at), generation, durationMs, modules };
        this.generation = generation;
        this.failure = undefined;
        return;
      }
      case "reload.failed":
        this.failure = { title: `${event.phase}: ${event.reason}`, frames: framesOf(event.diagnostics) };
        return;
      case "rollback":
        this.generation = event.to;
        this.rollback = `generation ${event.from} went back to ${event.to}: ${event.reason}`;
        return;
      case "service.crash":
        this.crash = { title: `${event.service} crashed: ${event.reason}`, frames: placesOf(event.stack) };
        return;
      default:
    }
  }
}

type Diagnostics = Extract<LiveEvent, { type: "reload.failed" }>["diagnostics"];

/** Each mistake with its place, as editors and terminals understand it. */
function problemsOf(diagnostics: Diagnostics): Problem[] {
  return diagnostics.map(({ file, line, column, message, frame }) => ({
    title: `${file}:${line}:${column}: ${message}`,
    frames: frame === "" ? [] : frame.split("\n"),
  }));
}

const framesOf = (diagnostics: Diagnostics): string[] =>
  problemsOf(diagnostics.filter(({ severity }) => severity === "error")).flatMap(({ title, frames }, at) =>
    // The title of the first is the reason of the failure.
    at === 0 ? frames : [title, ...frames],
  );

/** The lines of a stack that are code of the app. */
const placesOf = (stack: string | undefined): string[] =>
  (stack ?? "")
    .split("\n")
    .filter((line) => /^\s+at .*\bsrc\//.test(line))
    .slice(0, 4)
    .map((line) => line.trim());
