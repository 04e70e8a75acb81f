import { run } from "@atoll/host";
import { expect, test } from "vitest";
import { scanPython } from "../../src/scan/scan-python.ts";
import { scan } from "../../src/scan/scan.ts";

const { exitCode } = await run("/bin/sh", ["-c", "python3 -c pass"], {
  signal: new AbortController().signal,
  timeoutMs: 30_000,
});

const found = async (source: string): Promise<string[]> =>
  (await scan(new Map([["a.py", source]]))).map(
    ({ line, column, severity, rule }) => `${line}:${column} ${severity} ${rule}`,
  );

test
  .skipIf(exitCode !== 0)
  .for<[source: string, ...found: string[]]>([
    ["eval('1')", "1:1 high dynamic_code"],
    ["import subprocess as s", "1:1 high start_process"],
    ["from os import system as run\nrun('ls')", "1:1 low environment", "2:1 high start_process"],
    ["__import__('so' + 'cket')", "1:1 medium network_access"],
    ["().__class__.__base__.__subclasses__()", "1:1 high prototype_escape"],
    ["getattr(f, '__glo' + 'bals__')", "1:1 high prototype_escape"],
    ["while True:\n  pass", "1:1 medium endless_loop"],
    ["while True:\n  if f(): break"],
    ["print('eval(1)')  # exec"],
    ["def f(:", "1:7 high syntax_error"],
  ])("%s", async ([source, ...expected]) => expect(await found(source)).toEqual(expected));

test.skipIf(exitCode !== 0)("a source that ends the parser costs only itself", async () => {
  const deep = `${"(".repeat(100_000)}${")".repeat(100_000)}`;
  const findings = await scan(
    new Map([
      ["deep.py", deep],
      ["minus.py", `x = ${"-".repeat(200_000)}1`],
      ["a.py", "exec('1')"],
    ]),
  );
  const of = (file: string): string[] => findings.filter((each) => each.file === file).map(({ rule }) => rule);
  expect(of("a.py")).toEqual(["dynamic_code"]);
  for (const file of ["deep.py", "minus.py"])
    expect(of(file)).toEqual([expect.stringMatching(/unscannable|syntax_error/)]);
});

test("where there is no Python, each source is reported as not scanned", async () => {
  const signal = new AbortController().signal;
  expect(await scanPython(new Map([["a.py", "x = 1"]]), signal, "python-of-no-machine")).toMatchObject([
    { file: "a.py", rule: "unscannable", severity: "high", why: expect.stringContaining("there is no python") },
  ]);
});
