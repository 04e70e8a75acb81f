import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { CustomProfile } from "@atoll/protocol";
import { afterAll, describe, expect, test } from "vitest";
import type { LiveEvent } from "../../src/events/live-event.ts";
import { missingCgroups } from "../../src/isolation/app-cgroup.ts";
import { BubblewrapHost } from "../../src/isolation/bubblewrap-host.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { LiveManager } from "../../src/manager/live-manager.ts";

const bubblewrap = new BubblewrapHost();
const lacks = [...(await bubblewrap.missing()), ...(await missingCgroups())];

const app = `import { defineSupervisor } from "@atoll/live/app"; import { probe } from "./probe.ts";
  export default defineSupervisor({ maxRestarts: 1_000, children: [{ id: "probe", start: [probe] }] });`;
const probe = (body: string, head = ""): string => `${head}
  import { defineService } from "@atoll/live/app";
  export const probe = defineService({ init: () => ({ kept: [] as unknown[] }),
    call: { async work(state, argument: unknown) { ${body} } } });`;

const folders: string[] = [];
afterAll(() => folders.forEach((path) => rmSync(path, { recursive: true, force: true })));

function folderOf(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "atoll-live-"));
  folders.push(folder);
  for (const [path, content] of Object.entries({ "src/app.ts": app, ...files })) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
  return folder;
}

const stateDir = mkdtempSync(join(tmpdir(), "atoll-live-state-"));
folders.push(stateDir);
/** This profile is as strict as `high` about what code may do, at a level that needs nothing. */
const strict: CustomProfile = {
  isolation: "low",
  limits: { memoryBytes: 256 * 1024 * 1024, cpus: 1, processes: 50 },
  allowedOperations: ["compute"],
  restrictedModules: ["left-pad"],
  audit: "full",
  softLimit: 0.8,
  onHardLimit: "kill",
};
const readers: CustomProfile = { ...strict, allowedOperations: ["file_read", "network_client"], restrictedModules: [] };
const manager = new LiveManager({
  hosts: [bubblewrap, new ProcessHost()],
  stateDir,
  profiles: { strict, readers },
});
afterAll(() => manager[Symbol.asyncDispose]());

let apps = 0;
/** Starts an app and returns what its service answers. */
async function answerOf(profile: string, body: string, head = ""): Promise<unknown> {
  const id = `app-${(apps += 1)}`;
  const folder = folderOf({ "src/probe.ts": probe(body, head) });
  try {
    await manager.create(id, folder, { profile, typeCheck: "off", maxRestarts: 0, isolation: "process" });
    return await manager.call(id, "probe", "work");
  } finally {
    await manager.destroy(id).catch(() => undefined);
  }
}

const denied = { code: "permission_denied", message: expect.stringMatching(/strict/) };

describe.skipIf(lacks.length > 0)("profiles of apps", { timeout: 60_000 }, () => {
  test("a module that only computes can be imported, others fail with module, profile and fix", async () => {
    const head = `import { createHash } from "node:crypto"; import { join } from "path";`;
    const body = `return join("a", createHash("md5").update("x").digest("hex").slice(0, 2));`;
    expect(await answerOf("strict", body, head)).toBe("a/9d");
    await expect(
      answerOf("strict", "return readFileSync;", `import { readFileSync } from "node:fs";`),
    ).rejects.toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining("node:fs cannot be imported under the profile strict"),
      suggestion: expect.stringContaining("atoll profile show"),
      diagnostics: expect.arrayContaining([
        expect.objectContaining({ file: "src/probe.ts", line: 1, code: "restricted_module", severity: "error" }),
      ]),
    });
  });

  test("at run time, every other way to a module or past the rules is refused", async () => {
    const ways: Record<string, string> = {
      "import()": `(await import(["node:f", "s"].join(""))).readFileSync("/etc/hostname", "utf8")`,
      "a specifier without node:": `Object.keys(await import(String("child_process")))`,
      "process.getBuiltinModule": `process.getBuiltinModule("fs")`,
      createRequire: `createRequire(import.meta.url)("fs").readFileSync("/etc/hostname", "utf8")`,
      "an internal module": `Object.keys(await import(String("_http_client")))`,
      "a restricted package": `Object.keys(await import(String("left-pad")))`,
      "process.binding": `process.binding("fs")`,
      "process.dlopen": `process.dlopen({ exports: {} }, "/x.node")`,
      "process.kill": `process.kill(1, 0)`,
      fetch: `(await fetch("http://127.0.0.1:1/")).status`,
      "module.register": `(await import("node:module")).register("data:text/javascript,")`,
      "crypto.setEngine": `(await import("node:crypto")).setEngine("/x.so")`,
    };
    const events: LiveEvent[] = [];
    const stop = manager.onEvent((event) => void (event.type === "security.denied" && events.push(event)));
    const cases = Object.entries(ways).map(([name, way]) => `case ${JSON.stringify(name)}: return typeof (${way});`);
    const source = probe(
      `const process: any = globalThis.process; switch (argument) { ${cases.join("\n")} }`,
      `import { createRequire } from "node:module";`,
    );
    const options = { profile: "strict", typeCheck: "off", isolation: "process" } as const;
    await manager.create("ways", folderOf({ "src/probe.ts": source }), options);
    for (const way of Object.keys(ways)) {
      await expect(manager.call("ways", "probe", "work", way)).rejects.toMatchObject(denied);
    }
    stop();
    expect(events).toContainEqual(expect.objectContaining({ app: "ways", what: "call process.kill" }));
    expect(events).toContainEqual(expect.objectContaining({ app: "ways", what: "import node:fs" }));
    await manager.destroy("ways");
  });

  test("packages follow the same rules, whether they are modules or not", async () => {
    const files = {
      "package.json": `{ "dependencies": { "esm-reader": "1", "cjs-reader": "1", "honest": "1" } }`,
      "node_modules/honest/package.json": `{ "type": "module", "exports": "./index.js" }`,
      "node_modules/honest/index.js": `import { basename } from "node:path"; export const name = () => basename("/a");`,
      "node_modules/esm-reader/package.json": `{ "type": "module", "exports": "./index.js" }`,
      "node_modules/esm-reader/index.js": `import { readFileSync } from "node:fs"; export { readFileSync };`,
      "node_modules/cjs-reader/package.json": `{ "main": "index.js" }`,
      "node_modules/cjs-reader/index.js": `module.exports = require("fs").readFileSync;`,
      "src/probe.ts": probe(`return Object.keys(await import(String(argument)));`),
    };
    await manager.create("packages", folderOf(files), { profile: "strict", typeCheck: "off", isolation: "process" });
    expect(await manager.call("packages", "probe", "work", "honest")).toEqual(["name"]);
    for (const name of ["esm-reader", "cjs-reader"]) {
      await expect(manager.call("packages", "probe", "work", name)).rejects.toMatchObject(denied);
    }
    await manager.destroy("packages");
  });

  test("a profile that only reads leaves the functions that read", async () => {
    const head = `import * as fs from "node:fs"; import { writeFile, open } from "node:fs/promises";
      import { createServer } from "node:http"; import { connect } from "node:net";`;
    const body = `const refusals: string[] = [];
      for (const [name, work] of Object.entries({
        write: () => fs.writeFileSync("/tmp/x", ""),
        promised: () => writeFile("/tmp/x", ""),
        opened: () => open("/tmp/x", "w"), stream: () => new fs.WriteStream("/tmp/x" as any),
        serve: () => createServer() }))
        try { await work(); }
        catch (error: any) { if (error.code === "permission_denied") refusals.push(name); }
      const file = await open("/etc/hosts"); await file.close();
      return { refusals, length: fs.readFileSync("/etc/hosts", "utf8").length > 0, connect: typeof connect };`;
    expect(await answerOf("readers", body, head)).toEqual({
      refusals: ["write", "promised", "opened", "stream", "serve"],
      length: true,
      connect: "function",
    });
  });

  test("the scan refuses code under high and warns under low, in an event and in the version", async () => {
    const folder = folderOf({ "src/probe.ts": probe(`return setTimeout("1" as any, 1);`) });
    const options = { typeCheck: "off" } as const;
    await expect(manager.create("high", folder, { ...options, profile: "high" })).rejects.toMatchObject({
      code: "permission_denied",
      phase: "scan",
      message: expect.stringMatching(/src\/probe.ts:4:\d+: high: a timer with text runs it as code/),
    });
    await manager.destroy("high");
    const scans: unknown[] = [];
    const stop = manager.onEvent((event) => event.type === "scan.end" && scans.push(event));
    expect(await manager.create("low", folder, { ...options, profile: "low" })).toMatchObject({ profile: "low" });
    stop();
    expect(scans).toMatchObject([
      { app: "low", ok: true, diagnostics: [{ file: "src/probe.ts", code: "dynamic_code", severity: "warning" }] },
    ]);
    expect(manager.history("low", "src/probe.ts").versions).toMatchObject([
      { number: 1, findings: [{ severity: "high", rule: "dynamic_code" }] },
    ]);
    await manager.destroy("low");
  });

  test("an app may ask for less than its profile has, and not for more", async () => {
    const folder = folderOf({ "src/probe.ts": probe(`return 1;`), "live.json": `{ "profile": "high" }` });
    const create = (options: object) => manager.create("asks", folder, { typeCheck: "off", ...options });
    await expect(create({ limits: { memoryBytes: 2 ** 30 } })).rejects.toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining("the ceiling of the profile high"),
    });
    await expect(create({ ports: [8080] })).rejects.toMatchObject({ code: "permission_denied" });
    await expect(create({ isolation: "process" })).rejects.toMatchObject({ code: "permission_denied" });
    await expect(create({ profile: "none" })).rejects.toMatchObject({ code: "invalid_argument" });
    expect(await create({ limits: { processes: 20 } })).toMatchObject({ profile: "high", isolation: "bubblewrap" });
    await manager.destroy("asks");
  });

  test("a profile that this machine cannot provide is refused with what is missing", async () => {
    await using weak = new LiveManager({ hosts: [new ProcessHost()], stateDir, profiles: { strict } });
    const folder = folderOf({ "src/probe.ts": probe("return 1;") });
    await expect(weak.create("app", folder, { profile: "medium" })).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("medium"),
    });
    const profile = { ...strict, egress: { allow: [], deny: [] } };
    await expect(weak.create("app", folder, { profile })).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("a network of its own"),
    });
  });
});
