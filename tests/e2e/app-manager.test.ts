import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pollUntil } from "@atoll/host";
import type { LiveEvent } from "@atoll/live";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RunningAtoll, runAtoll, type CommandOutcome } from "../support/atoll-command.ts";

const counter = (by: string) => `import { defineService } from "@atoll/live/app";
export const counter = defineService({
  init: () => ({ count: 0, names: new Map([["a", 1n]]) }),
  open(_state, context) { context.log("the counter is open"); },
  call: {
    add(state, count: number) { state.count += count * ${by}; return state.count; },
    names: (state) => state.names,
    fail(): never { throw new Error("on purpose"); },
    hang(_state, _argument: unknown, context): void { context.log("hanging"); for (;;); },
  },
  cast: { reset(state) { state.count = 0; } },
});
`;

let top: string;
let folder: string;
let env: NodeJS.ProcessEnv;

beforeAll(() => {
  top = mkdtempSync(join(tmpdir(), "atoll-apps-"));
  folder = join(top, "shop");
  mkdirSync(join(folder, "src"), { recursive: true });
  writeFileSync(
    join(folder, "src/app.ts"),
    `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
     export default defineSupervisor({ children: [{ id: "counter", start: [counter] }] });`,
  );
  edit("1");
  env = { XDG_STATE_HOME: join(top, "state"), XDG_CACHE_HOME: join(top, "cache") };
});
afterAll(async () => {
  for (const pid of await processesOf("keep-apps")) process.kill(pid, "SIGTERM");
  if (!(await pollUntil(async () => (await processesOf("")).length === 0, { deadlineMs: 30_000 }))) {
    throw new Error("Processes of apps are left");
  }
  rmSync(top, { recursive: true, force: true });
});

const edit = (by: string): void => writeFileSync(join(folder, "src/counter.ts"), counter(by));
const app = (...words: string[]): Promise<CommandOutcome> => runAtoll(undefined, ["app", ...words], { env });
const create = (id: string, ...words: string[]): Promise<CommandOutcome> =>
  app("create", folder, "--id", id, "--isolation", "process", ...words);

async function output(...words: string[]): Promise<string> {
  const outcome = await app(...words);
  expect(outcome).toMatchObject({ exitCode: 0 });
  return outcome.stdout;
}

/** The processes of the manager and of its apps, whose command lines name our directory. */
async function processesOf(part: string): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = pids.map(async (pid) => {
    const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    return command.includes(top) && command.includes(part) ? [Number(pid)] : [];
  });
  return (await Promise.all(found)).flat();
}

test("an app goes on between commands, and is listed, described, called and removed", async () => {
  expect(await output("ls")).toBe("");
  expect(await create("first")).toMatchObject({
    stdout: "first\n",
    stderr: expect.stringContaining("isolation process (for code that you trust: this level is no wall)"),
  });
  expect(await output("ls")).toMatch(/^first\trunning\tprocess\t1\t0\t.*\/shop\t\n$/);
  expect(await output("call", "first", "counter", "add", "2")).toBe("2\n");
  expect(await output("call", "first", "counter", "add", "3")).toBe("5\n");
  expect(JSON.parse(await output("call", "first", "counter", "names", "--json"))).toEqual({ value: { a: "1" } });
  await output("call", "first", "counter", "reset", "--cast");
  expect(await output("call", "first", "counter", "add", "1")).toBe("1\n");
  const info = JSON.parse(await output("info", "first", "--json"));
  expect(info).toMatchObject({ state: "running", services: [{ name: "counter", messages: 5 }], processes: 1 });
  expect(info.memoryBytes).toBeGreaterThan(0);
  expect(JSON.parse(await output("ls", "--json"))).toMatchObject({ apps: [{ id: "first", profile: "standard" }] });
  expect(await output("info", "first")).toContain("\nprofile\tstandard\n");
  expect(await output("info", "first")).toMatch(/^id\tfirst\nstate\trunning\n/);
  expect(await output("logs", "first")).toMatch(/^\S+\tcounter\tthe counter is open\n$/);
  expect(await create("first")).toMatchObject({ exitCode: 1, stderr: expect.stringContaining("--id") });
  expect(await output("rm", "first")).toBe("first\n");
  expect(await output("ls")).toBe("");
});

test("what a person did wrong is said, with what to do", async () => {
  await create("wrong");
  const failed = [
    [["info", "absent"], 1, /There is no app absent\n.*"atoll app ls"/],
    [["call", "wrong", "absent", "add"], 1, /Cannot call absent\.add of app wrong: .*\n.*"atoll app info wrong"/],
    [["call", "wrong", "counter", "fail"], 1, /Cannot call counter\.fail of app wrong: .*on purpose/],
    [["call", "wrong", "counter", "add", "no-json"], 2, /it is not JSON\n.*'"no-json"'/],
    [["rollback", "wrong"], 1, /there is no generation before 1\n.*"atoll app versions wrong"/],
    [["rollback", "wrong", "--module", "src/app.ts"], 2, /--module-version/],
    [["create", join(top, "absent"), "--id", "absent"], 1, /Cannot find the folder/],
    [["create", folder, "--id", "Not An Id"], 2, /lower-case letters/],
    [["create", folder, "--id", "strict", "--isolation", "process", "--profile", "high"], 1, /profile high does not/],
  ] as const;
  for (const [words, exitCode, expected] of failed) {
    const outcome = await app(...words);
    expect({ words, ...outcome }).toMatchObject({ words, exitCode, stdout: "" });
    expect(outcome.stderr).toMatch(expected);
  }
  expect(await output("ls", "-q")).toBe("wrong\n");
  await output("rm", "wrong");
});

test("code is reloaded with its state, listed, compared and rolled back", async () => {
  edit("1");
  await create("code");
  await output("call", "code", "counter", "add", "2");
  edit("10");
  expect(await output("reload", "code")).toMatch(/^generation 2 in .* src\/counter\.ts; .*states: counter\n$/);
  expect(await output("reload", "code")).toBe("generation 2, nothing has changed\n");
  expect(await output("call", "code", "counter", "add", "2")).toBe("22\n");
  edit("= 5");
  const broken = await app("reload", "code");
  expect(broken).toMatchObject({ exitCode: 1, stdout: "" });
  expect(broken.stderr).toMatch(/src\/counter\.ts:6:\d+: error: Unexpected token\n[^]*> 6 \|[^]*error: Cannot compile/);
  expect(await output("call", "code", "counter", "add", "0")).toBe("22\n");
  expect(await output("versions", "code")).toMatch(/^2\tcurrent.*\trequest\t.*\tsrc\/counter\.ts\n1\t/);
  expect(await output("versions", "code", "--module", "src/counter.ts")).toMatch(/^2\tcurrent\t.*\n1\t\t/);
  expect(await output("versions", "code", "--diff", "1..2")).toMatch(/^-.*count \* 1;.*\n\+.*count \* 10;/m);
  expect(await output("rollback", "code")).toMatch(/^generation 1 in /);
  expect(await output("call", "code", "counter", "add", "1")).toBe("23\n");
  const module = ["--module", "src/counter.ts", "--module-version", "2"];
  expect(JSON.parse(await output("rollback", "code", "--json", ...module))).toMatchObject({ generation: 2 });
  await output("rm", "code");
});

test("watch prints every step as JSON while the folder is edited, and logs follow", async () => {
  edit("1");
  await using watch = new RunningAtoll(undefined, ["app", "watch", "--json"], env);
  await create("seen", "--auto-reload");
  await using logs = new RunningAtoll(undefined, ["app", "logs", "-f", "seen"], env);
  const events = (): LiveEvent[] =>
    watch.stdout
      .toString()
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as LiveEvent);
  await expect.poll(() => events().map(({ type }) => type)).toContain("service.start");
  await expect.poll(() => logs.stdout.toString()).toContain("the counter is open");
  edit("2");
  await expect
    .poll(events)
    .toContainEqual(expect.objectContaining({ app: "seen", type: "reload.end", modules: ["src/counter.ts"] }));
  edit("= 5");
  await expect.poll(() => logs.stdout.toString()).toContain("a reload failed: Cannot compile seen");
  edit("1");
  await output("rm", "seen");
});

test("after its manager was killed an app leaves nothing behind, is shown, and goes on with stored code", async () => {
  edit("1");
  await create("left");
  await create("stuck");
  edit("10");
  await output("reload", "left");
  await using hang = new RunningAtoll(undefined, ["app", "call", "stuck", "counter", "hang"], env);
  const log = join(top, "state/atoll/apps/logs/stuck.log");
  await expect.poll(() => readFile(log, "utf8")).toContain("hanging");
  const [manager = 0] = await processesOf("keep-apps");
  process.kill(manager, "SIGKILL");
  expect(await hang.ended).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining("the manager of apps has ended"),
  });
  // Also the app that never reads the end of its input.
  await expect.poll(() => processesOf("shop")).toEqual([]);
  const shown = await app("ls");
  expect(shown.stdout).toMatch(/^left\tinterrupted\tprocess\t2\t.*\nstuck\tinterrupted\t/);
  expect(shown.stderr).toContain('"atoll app start left stuck"');
  expect(await processesOf("keep-apps")).toEqual([]);
  expect(await app("call", "left", "counter", "add", "1")).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining('"atoll app start left"'),
  });
  // What the folder has now is not what ran.
  edit("100");
  expect(await output("start", "left")).toBe("left\n");
  expect(await output("call", "left", "counter", "add", "1")).toBe("10\n");
  expect(await output("versions", "left")).toMatch(/^2\tcurrent/);
  expect(await output("reload", "left")).toMatch(/^generation 3 /);
  expect(await output("start", "stuck", "--generation", "1")).toBe("stuck\n");
  await output("rm", "left", "stuck");
});

test("an app that cannot start stays with its reason, and a repair starts it", async () => {
  edit("= 5");
  const created = await create("broken");
  expect(created).toMatchObject({ exitCode: 1, stdout: "" });
  expect(created.stderr).toContain("> 6 |");
  expect(await output("ls")).toMatch(/^broken\terror\t.*Unexpected token/);
  edit("1");
  expect(await output("reload", "broken")).toMatch(/^generation 1 /);
  expect(await output("call", "broken", "counter", "add", "1")).toBe("1\n");
  await output("rm", "broken");
});

test("what apps do is in an audit log that can be verified", async () => {
  const dir = join(top, "state/atoll/apps/audit");
  const lines = (await readFile(join(dir, "audit.jsonl"), "utf8")).trim().split("\n");
  expect(lines.map((line) => JSON.parse(line) as { what: string })).toContainEqual(
    expect.objectContaining({ what: expect.stringContaining("reload") }),
  );
  const verified = await runAtoll(undefined, ["audit", "verify", "--dir", dir, "--json"], { env });
  expect(verified).toMatchObject({ exitCode: 0 });
  expect(JSON.parse(verified.stdout)).toMatchObject({ isIntact: true, isAuthenticated: true, problems: [] });
});

test("a request that is none is refused, and the manager goes on", async () => {
  await create("sound");
  const refused = async (text: string): Promise<unknown> => {
    const socket = connect(join(top, "state/atoll/apps/keeper.sock"));
    socket.write(text);
    let answer = "";
    for await (const data of socket) answer += String(data);
    return JSON.parse(answer);
  };
  expect(await refused("nonsense\n")).toMatchObject({ error: { code: "invalid_argument" } });
  expect(await refused('{"method":"remove","id":"../../x"}\n')).toMatchObject({ error: { code: "invalid_argument" } });
  expect(await refused("x".repeat(9 * 1024 * 1024))).toMatchObject({ error: { code: "limit_reached" } });
  expect(await output("ls", "-q")).toBe("sound\n");
  await output("rm", "sound");
});
