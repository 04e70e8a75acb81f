import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { LiveEvent } from "@atoll/live";
import { expect, test } from "vitest";
import { RunningAtoll, runAtoll } from "../support/atoll-command.ts";
import { Terminal } from "../support/terminal.ts";

const entry = `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
export default defineSupervisor({ children: [{ id: "counter", start: [counter] }] });`;
const counter = (text: string) => `import { defineService } from "@atoll/live/app";
export const counter = defineService({
  init: () => ({ count: 0 }),
  open(_state, context) { context.log(${text}); },
  cast: { tick(state, _by: unknown, context) { state.count += 1; context.log(${text}); } },
});`;

class AppFolder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "atoll-app-"));

  constructor() {
    mkdirSync(join(this.path, "src"));
    writeFileSync(join(this.path, "src/app.ts"), entry);
    this.write('"first"');
  }

  write(text: string): void {
    writeFileSync(join(this.path, "src/counter.ts"), counter(text));
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

const eventsOf = ({ stdout }: RunningAtoll): LiveEvent[] =>
  stdout
    .toString()
    .split("\n")
    .filter((line) => line.endsWith("}"))
    .map((line) => JSON.parse(line) as LiveEvent);

test("dev reloads what is saved, shows mistakes with their place, and ends the app with itself", async () => {
  using folder = new AppFolder();
  await using dev = new RunningAtoll(undefined, ["app", "dev", folder.path, "--isolation", "process", "--json"]);
  const seen = async (expected: object): Promise<void> => {
    await expect.poll(() => eventsOf(dev)).toContainEqual(expect.objectContaining(expected));
  };
  await seen({ type: "app.info" });
  await seen({ type: "log", text: "first" });
  folder.write('"second"');
  await seen({ type: "reload.end", generation: 2, modules: ["src/counter.ts"], services: ["counter"] });
  folder.write("= 5");
  await seen({
    type: "reload.failed",
    phase: "compile",
    diagnostics: [
      expect.objectContaining({ file: "src/counter.ts", line: 4, frame: expect.stringContaining("> 4 |") }),
    ],
  });
  folder.write('"third"');
  await seen({ type: "reload.end", generation: 3 });
  dev.child.kill("SIGINT");
  expect(await dev.ended).toMatchObject({ exitCode: 130, stderr: "" });
  expect(eventsOf(dev).at(-1)).toMatchObject({ type: "app.state", state: "stopped" });
});

test("dev waits for the repair of an app that cannot start", async () => {
  using folder = new AppFolder();
  folder.write("= 5");
  await using dev = new RunningAtoll(undefined, ["app", "dev", folder.path, "--isolation", "process"]);
  await expect.poll(() => dev.stdout.toString()).toContain("state\terror");
  folder.write('"repaired"');
  await expect.poll(() => dev.stdout.toString()).toContain("log\tcounter\trepaired");
  expect(dev.stdout.toString()).toContain("isolation process (for code that you trust: this level is no wall)");
});

test("dev refuses what the profile does not allow", async () => {
  using folder = new AppFolder();
  const words = ["app", "dev", folder.path, "--isolation", "process", "--profile", "high"];
  const { exitCode, stderr } = await runAtoll(undefined, words);
  expect(exitCode).toBe(1);
  expect(stderr).toContain("the profile high does not allow isolation process");
});

test("dev draws services and the last mistake on a terminal", async () => {
  using folder = new AppFolder();
  const server = { url: "http://127.0.0.1:1", key: "none" };
  await using terminal = new Terminal(server, ["app", "dev", folder.path, "--isolation", "process"]);
  await terminal.shows(/counter +.*running/);
  folder.write("= 5");
  await terminal.shows("Unexpected token");
  await terminal.shows("> 4 |");
  terminal.signal("SIGINT");
  expect((await terminal.ended).exitCode).toBe(130);
});

test.for([
  ["unix", /^\S+\/src\/counter\.ts:4:\d+: error: Unexpected token\n/],
  ["github", /^::error file=\S+\/src\/counter\.ts,line=4,col=\d+::Unexpected token\n/],
  ["json", /^\{"ok":false,"diagnostics":\[\{"file":"src\/counter\.ts","line":4/],
] as const)("check reports mistakes as %s and ends with 1", async ([format, expected]) => {
  using folder = new AppFolder();
  const words = ["app", "check", folder.path, "--format", format];
  expect((await runAtoll(undefined, words)).exitCode).toBe(0);
  folder.write("= 5");
  const { exitCode, stdout } = await runAtoll(undefined, words);
  expect(exitCode).toBe(1);
  expect(stdout).toMatch(expected);
});
