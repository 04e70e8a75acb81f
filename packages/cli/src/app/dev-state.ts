import type { AppInfo, LiveEvent, SourcePlace } from "@atoll/live";

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
        // A reload with this code may fail, too, and then says why. Code that runs already is not reloaded.
        if (event.ok) this.failure = undefined;
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
        this.failure = { title: `${event.phase}: ${event.reason}`, frames: framesOf(event) };
        return;
      case "rollback":
        this.generation = event.to;
        this.rollback = `generation ${event.from} went back to ${event.to}: ${event.reason}`;
        return;
      case "service.crash":
        this.crash = { title: `${event.service} crashed: ${event.reason}`, frames: placesOf(event) };
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

/** The lines around what keeps the code from running: mistakes in it, or the place where it threw. */
function framesOf({ diagnostics, place }: Extract<LiveEvent, { type: "reload.failed" }>): string[] {
  const errors = problemsOf(diagnostics.filter(({ severity }) => severity === "error"));
  if (errors.length === 0) return linesAround(place);
  // The title of the first is the reason of the failure.
  return errors.flatMap(({ title, frames }, at) => (at === 0 ? frames : [title, ...frames]));
}

/** The place of a crash, and the lines of its stack that are code of the app. */
function placesOf({ place, stack = "" }: Extract<LiveEvent, { type: "service.crash" }>): string[] {
  const calls = stack.split("\n").filter((line) => /^\s+at .*\bsrc\//.test(line));
  return [...linesAround(place), ...calls.slice(0, 4).map((line) => line.trim())];
}

function linesAround(place: SourcePlace | undefined): string[] {
  if (place === undefined) return [];
  return [`${place.file}:${place.line}:${place.column}`, ...(place.frame === "" ? [] : place.frame.split("\n"))];
}
