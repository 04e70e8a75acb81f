import { SpanStatusCode } from "@opentelemetry/api";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { expect, test } from "vitest";
import { traceEvents } from "../../src/telemetry/trace-events.ts";
import { counter, startCounter } from "../support/counter-app.ts";

test("reloads, failures and recoveries are counted, and each step has its duration and its span", async () => {
  await using app = await startCounter({}, { probationMs: 600_000 });
  const { manager, id } = app;
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  const unlisten = manager.onEvent(traceEvents(provider.getTracer("test")));
  await app.reload({ "src/counter.ts": counter({ add: "state.count += 2 * by;" }) });
  await expect(app.reload({ "src/counter.ts": "const;" })).rejects.toThrow("Cannot compile");
  await app.kill();
  await app.assertRunning();
  unlisten();

  const { text, contentType } = await manager.metrics();
  expect(contentType).toContain("text/plain");
  const lines = text.split("\n");
  expect(lines).toContain('atoll_live_apps{state="running"} 1');
  expect(lines).toContain('atoll_live_reloads_total{result="ok"} 1');
  expect(lines).toContain('atoll_live_reloads_total{result="compile"} 1');
  expect(lines).toContain('atoll_live_step_seconds_count{step="compile",result="ok"} 2');
  expect(lines).toContain('atoll_live_step_seconds_count{step="commit",result="ok"} 1');
  expect(lines).toContain("atoll_live_rollbacks_total 1");
  expect(lines).toContain('atoll_live_recoveries_total{kind="runtime",recovery="restart"} 1');

  const spans = exporter.getFinishedSpans();
  const names = spans.map(({ name }) => name);
  expect(names.slice(0, 5)).toEqual([
    "live compile",
    "live reload prepare",
    "live reload suspend",
    "live reload commit",
    "live reload",
  ]);
  expect(spans.filter(({ status }) => status.code === SpanStatusCode.ERROR).map(({ name }) => name)).toEqual([
    "live compile",
    "live reload",
  ]);
  expect(spans.every(({ attributes }) => attributes["atoll.live.app"] === id)).toBe(true);
});
