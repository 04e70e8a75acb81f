import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { createLog } from "../../src/telemetry/log.ts";
import { noTracing, openTracing } from "../../src/telemetry/tracing.ts";

const sources = fileURLToPath(new URL("../../src/", import.meta.url));

test("without a collector nothing is traced", async () => {
  const tracing = await openTracing(undefined, createLog("silent"));
  expect(tracing).toBe(noTracing);
  const span = tracing.start("anything");
  expect(span.within(() => 42)).toBe(42);
  expect(span.traceId).toBeUndefined();
});

test("the tracing packages are loaded only when tracing is on", async () => {
  const files = await readdir(sources, { recursive: true });
  const eager: string[] = [];
  for (const file of files.filter((name) => name.endsWith(".ts"))) {
    const text = await readFile(`${sources}${file}`, "utf8");
    if (/^import (?!type ).*"@opentelemetry\//m.test(text)) eager.push(file);
  }
  expect(eager).toEqual([]);
});
