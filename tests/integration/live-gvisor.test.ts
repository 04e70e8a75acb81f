// @module-tag gvisor
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { GvisorHost, LiveManager, type LiveEvent } from "@atoll/live";
import { Atoll } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { appHostContract } from "../../packages/live/test/isolation/app-host-contract.ts";
import { freePort } from "../support/free-port.ts";
import { startTestServer, startTestServerProcess, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let host: GvisorHost;
beforeAll(async () => {
  server = await startTestServer();
  host = new GvisorHost({ baseUrl: server.url, apiKey: server.key });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
  await server.dispose();
});

appHostContract("gvisor", () => host);

const app = `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
  export default defineSupervisor({ children: [{ id: "counter", start: [counter, {}] }] });`;
const counter = (more = "") => `import { defineService } from "@atoll/live/app"; import { word } from "outer";
  export const counter = defineService({ init: () => ({ count: 0 }), call: {
    add(state, by: number) { state.count += by; return state.count; },
    word: () => word ${more} } });`;

/** A folder with packages above it: one that is a link, and one that is needed by that one only. */
function makeApp(): string {
  const top = mkdtempSync(join(tmpdir(), "atoll-live-"));
  const write = (path: string, content: string): void => {
    mkdirSync(dirname(join(top, path)), { recursive: true });
    writeFileSync(join(top, path), content);
  };
  write(
    "linked/package.json",
    `{ "name": "outer", "type": "module", "main": "i.js", "dependencies": { "inner": "*" } }`,
  );
  write("linked/i.js", `import { inner } from "inner"; export const word = "outer and " + inner;`);
  write("node_modules/inner/package.json", `{ "name": "inner", "type": "module", "main": "i.js" }`);
  write("node_modules/inner/i.js", `export const inner = "inner";`);
  write("node_modules/unused/package.json", `{ "name": "unused" }`);
  symlinkSync("../linked", join(top, "node_modules/outer"));
  write("app/package.json", `{ "dependencies": { "outer": "*" } }`);
  write("app/src/app.ts", app);
  write("app/src/counter.ts", counter());
  return top;
}

test("an app in a sandbox has its packages, and is reloaded with its state", async () => {
  const top = makeApp();
  await using manager = new LiveManager({ hosts: [host], stateDir: join(top, "state") });
  await manager.create("app", join(top, "app"));
  expect(manager.get("app")).toMatchObject({ state: "running", isolation: "gvisor" });
  expect(await manager.call("app", "counter", "word")).toBe("outer and inner");
  expect(await manager.call("app", "counter", "add", 5)).toBe(5);
  writeFileSync(join(top, "app/src/counter.ts"), counter(`, twice: (state) => state.count * 2`));
  await manager.hotReload("app");
  expect(await manager.call("app", "counter", "twice")).toBe(10);
  await manager.destroy("app");
  const client = new Atoll({ baseUrl: server.url, apiKey: server.key });
  expect((await client.sandboxes({ labels: { "live-app": "app" } }).next()).done).toBe(true);
  client.close();
  rmSync(top, { recursive: true, force: true });
});

test("an app goes on in the same process when the server is killed and started again", async () => {
  const flags = ["--port", String(await freePort())];
  const first = await startTestServerProcess({ flags });
  const top = makeApp();
  const local = new GvisorHost({ baseUrl: first.url, apiKey: first.key });
  const manager = new LiveManager({ hosts: [local], stateDir: join(top, "state") });
  const events: LiveEvent[] = [];
  manager.onEvent((event) => events.push(event));
  await manager.create("app", join(top, "app"), { limits: { unresponsiveMs: 500 } });
  await manager.call("app", "counter", "add", 5);
  await first.signal("SIGKILL");
  const answer = manager.call("app", "counter", "add", 1);
  const second = await startTestServerProcess({ dataDir: first.dataDir, flags });
  expect(await answer).toBe(6);
  expect(manager.get("app")).toMatchObject({ state: "running", restarts: 0 });
  expect(events.filter(({ type }) => type === "process.end")).toEqual([]);
  await manager[Symbol.asyncDispose]();
  await local[Symbol.asyncDispose]();
  await second.dispose();
  rmSync(top, { recursive: true, force: true });
});

test("without a server that lets us in, the level says what it lacks", async () => {
  const stranger = new GvisorHost({ baseUrl: server.url, apiKey: "atk_wrong" });
  expect(await stranger.missing()).toEqual([expect.stringContaining("ATOLL_API_KEY")]);
  const manager = new LiveManager({ hosts: [stranger] });
  await expect(manager.create("app", makeApp(), { isolation: "gvisor" })).rejects.toMatchObject({
    code: "unsupported",
  });
  await manager[Symbol.asyncDispose]();
});
