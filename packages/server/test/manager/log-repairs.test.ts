import { pino } from "pino";
import { expect, test } from "vitest";
import { logRepairs } from "../../src/manager/log-repairs.ts";

test("what a server finds at its start is logged line by line, and as a warning where an operator is needed", () => {
  const lines: string[] = [];
  const log = pino({ base: null, timestamp: false }, { write: (line: string) => void lines.push(line) });
  logRepairs(
    [
      { what: "sandbox one", done: "adopted", because: "it runs" },
      { what: "layer two", done: "removed", because: "no checkpoint needs it" },
      { what: "sandbox three", done: "failed", because: "it did not answer" },
      { what: "/data/sandboxes/four", done: "reported", because: "its record cannot be read" },
    ],
    log,
  );
  const [info, warn] = [30, 40];
  expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
    { level: info, what: "sandbox one", done: "adopted", because: "it runs", msg: "found at start" },
    { level: info, what: "layer two", done: "removed", because: "no checkpoint needs it", msg: "found at start" },
    { level: warn, what: "sandbox three", done: "failed", because: "it did not answer", msg: "found at start" },
    {
      level: warn,
      what: "/data/sandboxes/four",
      done: "reported",
      because: "its record cannot be read",
      msg: "found at start",
    },
  ]);
});
