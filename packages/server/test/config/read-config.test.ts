import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { usage } from "../../src/config/flags.ts";
import { describeConfig, readConfig } from "../../src/config/read-config.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-config-"));
});
afterAll(() => rm(dir, { recursive: true }));

async function file(content: unknown): Promise<string> {
  const path = join(dir, `config-${Math.random().toString(36).slice(2)}.json`);
  await writeFile(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

/** Reads a configuration with a file that exists, so that the machine's own file is never read. */
async function read(argv: string[], env: Record<string, string> = {}, content: unknown = {}) {
  return readConfig({ argv: ["--config", await file(content), ...argv], env });
}

test("flags win over the environment, which wins over the file, which wins over the defaults", async () => {
  const { config, sources } = await read(
    ["--port", "1"],
    { ATOLL_PORT: "2", ATOLL_HOST: "env" },
    { port: 3, host: "file", logLevel: "warn" },
  );
  expect(config).toMatchObject({ port: 1, host: "env", logLevel: "warn", dataDir: "/var/lib/atoll" });
  expect(sources).toMatchObject({ port: "flag", host: "environment", logLevel: "file", dataDir: "default" });
});

test("the defaults serve this machine only, without browsers, and leave sandboxes running", async () => {
  const { config } = await read([]);
  expect(config).toMatchObject({ host: "127.0.0.1", port: 4600, corsOrigins: [], killOnExit: false });
});

test("a setting also has the name that other programs use, and our own name wins", async () => {
  const standard = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://standard:4318" };
  expect((await read([], standard)).config.otlpEndpoint).toBe("http://standard:4318");
  expect((await read([], { OTEL_EXPORTER_OTLP_ENDPOINT: "" })).config.otlpEndpoint).toBeUndefined();
  const both = await read([], { ...standard, ATOLL_OTLP_ENDPOINT: "http://ours:4318" });
  expect(both).toMatchObject({
    config: { otlpEndpoint: "http://ours:4318" },
    sources: { otlpEndpoint: "environment" },
  });
  await expect(read([], { OTEL_EXPORTER_OTLP_ENDPOINT: "nowhere" })).rejects.toThrow("OTEL_EXPORTER_OTLP_ENDPOINT");
  await expect(read([], { ...standard, ATOLL_OTLP_ENDPOINT: "nowhere" })).rejects.toThrow("ATOLL_OTLP_ENDPOINT");
});

test("text is converted to the type of the setting", async () => {
  const { config } = await read(["--kill-on-exit", "--cors-origins=https://a.example, https://b.example"], {
    ATOLL_MAX_CONNECTIONS: "7",
  });
  expect(config).toMatchObject({
    killOnExit: true,
    corsOrigins: ["https://a.example", "https://b.example"],
    maxConnections: 7,
  });
  expect((await read(["--no-kill-on-exit"], { ATOLL_KILL_ON_EXIT: "true" })).config.killOnExit).toBe(false);
});

test.for<[string, string[], Record<string, string>, unknown, RegExp]>([
  ["a flag out of range", ["--port", "70000"], {}, {}, /port \(from --port\)/],
  ["a heartbeat that clients would not wait for", ["--heartbeat-ms", "45000"], {}, {}, /heartbeatMs \(from --heart/],
  ["a variable that is not a number", [], { ATOLL_PORT: "many" }, {}, /port \(from ATOLL_PORT\)/],
  ["an empty number", [], { ATOLL_PORT: "" }, {}, /port \(from ATOLL_PORT\)/],
  ["a relative data directory", ["--data-dir=here"], {}, {}, /dataDir \(from --data-dir\)/],
  ["a value of the wrong kind in the file", [], {}, { killOnExit: "yes" }, /killOnExit \(from .*config-/],
  ["a setting that does not exist", [], {}, { prot: 1 }, /"prot", which does not exist/],
  ["a flag that does not exist", ["--prot", "1"], {}, {}, /--prot is not one of its flags/],
  ["a flag without its value", ["--port"], {}, {}, /--port needs a value/],
  ["a file that is not JSON", [], {}, "{", /is not a JSON object/],
])("%s is refused by name", async ([, argv, env, content, message]) => {
  await expect(read(argv, env, content)).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringMatching(message),
  });
});

test("a named file that is missing is refused; the default one may be missing", async () => {
  await expect(readConfig({ argv: ["--config", join(dir, "absent.json")], env: {} })).rejects.toMatchObject({
    code: "invalid_argument",
  });
});

test("settings are described with their origin", async () => {
  expect(describeConfig(await read(["--port", "1"]))).toMatchObject({
    settings: { port: { value: 1, from: "flag" }, runscPath: { value: null, from: "default" } },
  });
});

test("the usage text has every flag", () => {
  expect(usage()).toContain("--headers-timeout-ms");
  expect(usage()).toContain("--keep-checkpoints-for-ms  checkpoints that");
  expect(usage()).toContain("--data-dir");
});
