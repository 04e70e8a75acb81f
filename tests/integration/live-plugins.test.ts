// @module-tag gvisor
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { GvisorHost, LiveManager } from "@atoll/live";
import { afterAll, beforeAll, expect, test } from "vitest";
import { PluginHost } from "../../examples/apps/plugins/plugin-host.ts";
import { repositoryRoot } from "../../tools/setup/paths.mjs";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let manager: LiveManager;
let host: PluginHost;
let top: string;

beforeAll(async () => {
  // Inside the repository, where the packages of the plug-ins are found.
  top = mkdtempSync(join(repositoryRoot, ".cache", "plugins-"));
  cpSync(join(repositoryRoot, "examples/apps/plugins/installed"), join(top, "installed"), { recursive: true });
  server = await startTestServer();
  const gvisor = new GvisorHost({ baseUrl: server.url, apiKey: server.key });
  manager = new LiveManager({ hosts: [gvisor], stateDir: join(top, "state") });
  host = new PluginHost(manager);
  await host.load(join(top, "installed"));
});
afterAll(async () => {
  await manager[Symbol.asyncDispose]();
  await server.dispose();
  rmSync(top, { recursive: true, force: true });
});

const failureOf = (reason: RegExp) => [{ plugin: "greedy", reason: expect.stringMatching(reason) }];

test("untrusted plug-ins do their work, and keep their state when a new version comes", async () => {
  expect(await host.apply("hello")).toEqual({ text: "1: HELLO", failures: [] });
  const path = join(top, "installed/count/src/plugin.ts");
  const source = readFileSync(path, "utf8");
  writeFileSync(path, source.replace("${state.count}:", "no. ${state.count}:"));
  expect(await host.update("count")).toBe(2);
  expect(await host.apply("hello")).toEqual({ text: "NO. 2: HELLO", failures: [] });
  writeFileSync(path, source.replace("state.count += 1", "state.count +="));
  await expect(host.update("count")).rejects.toThrow("Cannot compile count");
  expect(await host.apply("hello")).toEqual({ text: "NO. 3: HELLO", failures: [] });
});

test("a plug-in cannot read files of this machine, nor reach programs on it", async () => {
  const secret = join(top, "secret");
  writeFileSync(secret, "the secret");
  const stolen = await host.apply(`steal ${secret}`);
  expect(stolen.text).not.toContain("THE SECRET");
  expect(stolen).toMatchObject({ failures: failureOf(/ENOENT/) });
  const listener = createServer((socket) => socket.destroy()).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  expect(await host.apply(`call home ${port}`)).toMatchObject({ failures: failureOf(/ECONNREFUSED/) });
  listener.close();
});

test.for(["loop", "memory"])("a plug-in that tries %s fails alone, and is started again", async (attempt) => {
  const { text, failures } = await host.apply(attempt);
  expect(text).toContain(`: ${attempt.toUpperCase()}`);
  expect(failures).toEqual(failureOf(/./));
  await expect.poll(async () => (await host.apply("again")).failures).toEqual([]);
});
