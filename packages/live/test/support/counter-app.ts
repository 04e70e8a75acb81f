import { ProcessHost } from "../../src/isolation/process-host.ts";
import type { AppConfigInput } from "../../src/manager/app-options.ts";
import { startTestApp, type TestApp } from "../../src/testing/index.ts";

export const root = `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
  export default defineSupervisor({ children: [{ id: "counter", start: [counter, 0] }] });`;

interface Counter {
  version?: number;
  add?: string;
  /** More fields of the definition. */
  more?: string;
  /** More calls. */
  calls?: string;
}

/** The source of a service that counts. */
export const counter = ({ version = 1, add = "state.count += by;", more = "", calls = "" }: Counter = {}) =>
  `import { defineService } from "@atoll/live/app";
  export const counter = defineService({
    version: ${version}, init: (count: number): Record<string, any> => ({ count }), ${more}
    call: { add(state, by: number) { ${add} return state.count; }, state: (state) => state, ${calls} } });
`;

/** A counter in a process, without what costs time and is not tested. */
export function startCounter(
  sources: Readonly<Record<string, string>> = {},
  config: AppConfigInput = {},
): Promise<TestApp> {
  return startTestApp(
    { "src/app.ts": root, "src/counter.ts": counter(), ...sources },
    {
      name: "counter",
      config: { typeCheck: "off", limits: { cpus: 2, unresponsiveMs: 60_000 }, ...config },
      manager: { hosts: [new ProcessHost()] },
    },
  );
}
