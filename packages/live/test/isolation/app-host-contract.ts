import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { compileModule } from "../../src/compiler/compile-module.ts";
import type { AppHost, AppProcess } from "../../src/isolation/app-host.ts";
import { runtimeBundle } from "../../src/isolation/runtime-bundle.ts";
import { Connection, type RuntimeEvent } from "../../src/wire/connection.ts";
import { decode, encode } from "../../src/wire/encode.ts";

const MiB = 1024 * 1024;
export const folder = mkdtempSync(join(tmpdir(), "atoll-live-"));
mkdirSync(join(folder, "src"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const appSource = `import { defineSupervisor } from "@atoll/live/app"; import { probe } from "./probe.ts";
  export default defineSupervisor({ children: [{ id: "probe", start: [probe, { initial: 1 }] }] });`;
const probeSource = `import { defineService } from "@atoll/live/app"; import { createServer } from "node:http";
  import * as fs from "node:fs"; import { spawnSync } from "node:child_process"; import { connect } from "node:net";
  export const probe = defineService({
    init: (argument: { initial: number }) => ({ count: argument.initial }),
    call: {
      add(state, by: number) { console.log("adding", by); state.count += by; return state.count; },
      die() { process.abort(); },
      eat() { const eaten: unknown[] = []; for (;;) eaten.push(Buffer.alloc(8 * 1024 * 1024, 1)); },
      read: (state, path: string) => fs.readFileSync(path, "utf8").length,
      write: (state, path: string) => fs.writeFileSync(path, "x"),
      big: (state, path: string) => fs.writeFileSync(path, Buffer.alloc(4 * 1024 * 1024)),
      mount: () => spawnSync("mount", ["-t", "tmpfs", "none", "/tmp"]).status,
      unshare: () => spawnSync("unshare", ["--user", "true"]).status,
      env: () => Object.keys(process.env),
      connect: (state, port: number) => new Promise((resolve) => {
        const socket = connect(port, "127.0.0.1", () => resolve("connected"));
        socket.on("error", (error: { code?: string }) => resolve(error.code)); }),
      async serve(state, port: number, context) {
        const server = await context.keep("server", () => createServer((request, response) => response.end("hi")));
        await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve)); } } });`;

const compiled = (module: string, source: string) => {
  const { artifact, diagnostics } = compileModule(module, source);
  if (artifact === undefined) throw new Error(`${module} does not compile: ${diagnostics[0]?.message}`);
  return artifact;
};

/** An app with a service that does what it is asked to. */
export class Probe implements AsyncDisposable {
  readonly app: AppProcess;
  readonly events: RuntimeEvent[] = [];
  readonly #connection: Connection;

  private constructor(app: AppProcess) {
    this.app = app;
    this.#connection = new Connection(app, (event) => this.events.push(event));
  }

  static async start(host: AppHost, env: Readonly<Record<string, string>> = {}): Promise<Probe> {
    const app = await host.launch({
      id: `test-${Math.random().toString(36).slice(2)}`,
      folder,
      runtime: await runtimeBundle(),
      limits: { memoryBytes: 128 * MiB, processes: 20, cpus: 1, fileBytes: MiB },
      env,
      ports: [],
      signal: new AbortController().signal,
    });
    const probe = new Probe(app);
    const artifacts = [compiled("src/probe.ts", probeSource), compiled("src/app.ts", appSource)];
    await probe.#connection.request("load", { generation: 1, entry: "src/app.ts", artifacts }, 60_000);
    await probe.#connection.request("start", { snapshots: [] }, 60_000);
    return probe;
  }

  async call(name: string, argument?: unknown): Promise<unknown> {
    const params = { service: "probe", name, argument: encode(argument), timeoutMs: 60_000 };
    return decode((await this.#connection.request("call", params, 60_000)).value);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.app.kill();
  }
}

/** What holds at every level of isolation. */
export function appHostContract(level: string, hostOf: () => AppHost, { skip = false } = {}): void {
  describe(`an app at level ${level}`, () => {
    test.skipIf(skip)("answers, reports what it prints, and says how it ended", async () => {
      await using probe = await Probe.start(hostOf());
      expect(await probe.call("add", 41)).toBe(42);
      expect(probe.events).toContainEqual({ t: "log", level: "log", text: "adding 41" });
      const usage = await probe.app.usage();
      expect(usage.memoryBytes).toBeGreaterThan(MiB);
      expect(usage.cpuMs).toBeGreaterThan(0);
      await expect(probe.call("die")).rejects.toMatchObject({ code: "sandbox_ended" });
      expect((await probe.app.ended).kind).toMatch(/signal|exit/);
    });

    test.skipIf(skip)("is ended when it needs more memory than its limit", async () => {
      await using probe = await Probe.start(hostOf());
      await expect(probe.call("eat")).rejects.toMatchObject({ code: "sandbox_ended" });
      expect(await probe.app.ended).toEqual({ kind: "oom" });
    });

    test.skipIf(skip)("cannot make a file larger than its limit", async () => {
      await using probe = await Probe.start(hostOf());
      await expect(probe.call("big", join(tmpdir(), `atoll-big-${process.pid}`))).rejects.toThrow("EFBIG");
      rmSync(join(tmpdir(), `atoll-big-${process.pid}`), { force: true });
    });

    test.skipIf(skip)("has the variables that it was given, and no others of ours", async () => {
      await using probe = await Probe.start(hostOf(), { GIVEN: "1" });
      const names = (await probe.call("env")) as string[];
      expect(names).toContain("GIVEN");
      expect(
        names.filter((name) => !["GIVEN", "PATH", "LANG", "HOME", "PWD", "OLDPWD", "_", "SHLVL"].includes(name)),
      ).toEqual([]);
    });

    test.skipIf(skip)("serves its ports to this machine", async () => {
      await using probe = await Probe.start(hostOf());
      await probe.call("serve", 45_671);
      const address = await probe.app.forward(45_671);
      const response = await fetch(`http://${address.host}:${address.port}/`);
      expect(await response.text()).toBe("hi");
    });
  });
}
