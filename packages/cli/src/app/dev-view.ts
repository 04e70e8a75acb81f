import type { AppInfo, LiveEvent } from "@atoll/live";
import type { Cli } from "../cli.ts";
import { formatDuration } from "../output/amount.ts";
import { LiveScreen } from "../output/live-screen.ts";
import { printable } from "../output/printable.ts";
import type { Tone } from "../output/style.ts";
import { DevState, type Problem } from "./dev-state.ts";
import { linesOf } from "./event-lines.ts";
import { isolationLine } from "./isolation-levels.ts";
import { serviceColumns, type Services } from "./service-table.ts";
import { toneOfAppState } from "./state-tones.ts";

/** What a person, or a program, sees of an app while it is edited. */
export interface DevView extends Disposable {
  take(event: LiveEvent): void;
  /** The app has been created; it may run or not. `note` is about the server that it runs on. */
  begin(info: AppInfo, note?: string): void;
}

/** An app at one moment; without services while it does not run. */
export interface DevPicture {
  info: AppInfo;
  services: Services | undefined;
}

/** Returns a picture on a terminal, lines where output is piped, and events as JSON where those are asked for. */
export function openDevView(cli: Cli, read: () => Promise<DevPicture>): DevView {
  if (cli.isJson) return new JsonView(cli);
  return cli.isTerminal ? new ScreenView(cli, read) : new LineView(cli);
}

/** One event per line, and first what the app is. */
class JsonView implements DevView {
  readonly #cli: Cli;

  constructor(cli: Cli) {
    this.#cli = cli;
  }

  begin(info: AppInfo): void {
    this.#write({ type: "app.info", at: new Date().toISOString(), app: info.id, info });
  }

  take(event: LiveEvent): void {
    this.#write(event);
  }

  [Symbol.dispose](): void {
    // Every line was written when it came.
  }

  #write(value: unknown): void {
    this.#cli.stdout.write(`${JSON.stringify(value)}\n`);
  }
}

/** One line per thing that a person wants to know, with tabs between its parts. */
class LineView implements DevView {
  readonly #cli: Cli;

  constructor(cli: Cli) {
    this.#cli = cli;
  }

  begin(info: AppInfo, note?: string): void {
    if (note !== undefined) this.#cli.note(note);
    this.#write([isolationLine(info)]);
    for (const { port, host, hostPort } of info.ports) this.#write(["port", String(port), `${host}:${hostPort}`]);
  }

  take(event: LiveEvent): void {
    for (const line of linesOf(event)) this.#write(line);
  }

  [Symbol.dispose](): void {
    // Every line was written when it came.
  }

  #write(line: readonly string[]): void {
    this.#cli.stdout.write(`${line.map(printable).join("\t")}\n`);
  }
}

const redrawMs = 250;
const fallbackColumns = 80;

/** The app, its services and what is wrong with it. What the app logs scrolls away above. */
class ScreenView implements DevView {
  readonly #cli: Cli;
  readonly #screen: LiveScreen;
  readonly #state = new DevState();
  readonly #read: () => Promise<DevPicture>;
  readonly #timer: NodeJS.Timeout;
  #services: Services = [];
  #info: AppInfo | undefined;
  #isOpen = true;

  constructor(cli: Cli, read: () => Promise<DevPicture>) {
    this.#cli = cli;
    this.#screen = new LiveScreen(cli.stdout);
    this.#read = read;
    this.#timer = setInterval(() => void this.#refresh(), redrawMs).unref();
  }

  begin(info: AppInfo, note?: string): void {
    if (note !== undefined) this.#above(note);
    this.#info = info;
    this.#state.generation = info.generation;
    void this.#refresh();
  }

  take(event: LiveEvent): void {
    this.#state.take(event);
    if (event.type === "log") {
      const tone: Tone = event.level === "log" ? "quiet" : "busy";
      this.#above(`${this.#cli.style(tone, printable(event.service ?? "log"))}  ${printable(event.text)}`);
    }
    if (event.type === "reload.end" || event.type === "reload.failed" || event.type === "app.state") this.#draw();
  }

  [Symbol.dispose](): void {
    this.#isOpen = false;
    clearInterval(this.#timer);
    this.#screen.draw("");
    this.#screen[Symbol.dispose]();
  }

  #above(line: string): void {
    this.#screen.draw("");
    this.#cli.stdout.write(`${line}\n`);
    this.#draw();
  }

  async #refresh(): Promise<void> {
    if (this.#info === undefined) return this.#draw();
    const { info, services = this.#services } = await this.#read();
    this.#info = info;
    this.#services = services;
    // The last picture was taken down while this one was read.
    if (this.#isOpen) this.#draw();
  }

  #draw(): void {
    const { failure, crash, rollback, warnings } = this.#state;
    const lines = [
      ...this.#header(),
      ...this.#table(),
      ...(failure === undefined ? [] : this.#problem(failure, "bad")),
      ...(crash === undefined ? [] : this.#problem(crash, "bad")),
      ...(rollback === undefined ? [] : ["", this.#cli.style("busy", this.#cut(rollback))]),
      ...warnings.flatMap((warning) => this.#problem(warning, "busy")),
    ];
    this.#screen.draw(`${lines.join("\n")}\n`);
  }

  #table(): string[] {
    if (this.#services.length === 0) return [];
    return this.#cli.renderTable(serviceColumns, this.#services).trimEnd().split("\n");
  }

  #header(): string[] {
    const info = this.#info;
    if (info === undefined) return [this.#cli.style("quiet", "starting")];
    const { state, generation, lastReload } = this.#state;
    const style = this.#cli.style;
    const ports = info.ports.map(({ port, host, hostPort }) => `port ${port} is ${host}:${hostPort}`);
    const title = [style("strong", info.id), style(toneOfAppState(state), state), `generation ${generation}`, ...ports];
    const reload =
      lastReload === undefined
        ? "no reload yet: edit a file and save it"
        : `reloaded in ${lastReload.durationMs.toFixed(0)} ms, ${ago(lastReload.atMs)}: ` +
          lastReload.modules.join(" ");
    return [title.join("  "), style("quiet", this.#cut(isolationLine(info))), this.#cut(reload), ""];
  }

  #problem({ title, frames }: Problem, tone: Tone): string[] {
    const [first = "", ...rest] = title.split("\n");
    return [
      "",
      ...this.#wrap(first).map((line) => this.#cli.style(tone, line)),
      ...rest.flatMap((line) => this.#wrap(line)),
      ...frames.map((line) => {
        const shown = this.#cut(line);
        return line.startsWith(">") ? this.#cli.style("strong", shown) : this.#cli.style("quiet", shown);
      }),
    ];
  }

  /** The reason is what a person needs most, so it is never cut. */
  #wrap(text: string): string[] {
    const width = this.#cli.stdout.columns ?? fallbackColumns;
    const shown = text.split("\t").map(printable).join("  ");
    return shown.match(new RegExp(`.{1,${width}}(?= |$)|.{${width}}`, "gu"))?.map((line) => line.trimStart()) ?? [""];
  }

  /** A line that wraps could not be replaced. */
  #cut(text: string): string {
    const width = this.#cli.stdout.columns ?? fallbackColumns;
    const shown = text.split("\t").map(printable).join("  ");
    return shown.length <= width ? shown : `${shown.slice(0, width - 1)}…`;
  }
}

function ago(atMs: number): string {
  const seconds = Math.floor((Date.now() - atMs) / 1_000);
  return seconds < 1 ? "just now" : `${formatDuration(seconds * 1_000)} ago`;
}
