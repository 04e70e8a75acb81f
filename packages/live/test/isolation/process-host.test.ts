import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { compileModule } from "../../src/compiler/compile-module.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { runtimeBundle } from "../../src/isolation/runtime-bundle.ts";
import { Connection, type RuntimeEvent } from "../../src/wire/connection.ts";
import { decode, encode } from "../../src/wire/encode.ts";

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const compiled = (module: string, source: string) => {
  const { artifact } = compileModule(module, source);
  if (artifact === undefined) throw new Error(`${module} does not compile`);
  return artifact;
};

const appSource = `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
  export default defineSupervisor({ children: [{ id: "counter", start: [counter, { initial: 1 }] }] });`;
const counterSource = `import { defineService } from "@atoll/live/app";
  export const counter = defineService({
    init: (argument: { initial: number }) => ({ count: argument.initial }),
    call: { add(state, by: number) { console.log("adding", by); state.count += by; return state.count; },
      die() { process.abort(); } } });`;

test("an app runs as a process of its own, and its output and end arrive", async () => {
  const folder = mkdtempSync(join(tmpdir(), "atoll-live-"));
  folders.push(folder);
  mkdirSync(join(folder, "src"));
  const host = new ProcessHost();
  const app = await host.launch({
    id: "test",
    folder,
    runtime: await runtimeBundle(join(folder, "cache")),
    limits: { memoryBytes: 128 * 1024 * 1024, processes: 10, cpus: 1, fileBytes: 1024 * 1024 },
    env: {},
    ports: [],
    signal: new AbortController().signal,
  });
  const events: RuntimeEvent[] = [];
  const connection = new Connection(app, (event) => events.push(event));
  expect(await connection.hello).toMatchObject({ protocol: 1, node: process.version, pid: app.pid });
  const artifacts = [compiled("src/counter.ts", counterSource), compiled("src/app.ts", appSource)];
  await connection.request("load", { generation: 1, entry: "src/app.ts", artifacts }, 10_000);
  expect(await connection.request("start", { snapshots: [] }, 10_000)).toEqual({ services: 1 });
  const call = (name: string, argument: unknown) =>
    connection.request("call", { service: "counter", name, argument: encode(argument), timeoutMs: 5_000 }, 10_000);
  expect(decode((await call("add", 41)).value)).toBe(42);
  expect(events).toContainEqual({ t: "log", level: "log", text: "adding 41" });
  expect((await app.usage()).memoryBytes).toBeGreaterThan(1024 * 1024);
  await expect(call("die", undefined)).rejects.toMatchObject({ code: "sandbox_ended" });
  expect(await app.ended).toEqual({ kind: "signal", signal: "SIGABRT" });
});
