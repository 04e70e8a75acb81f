import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { scanModule, worstOf } from "@atoll/guard";
import { builtInProfiles, type CustomProfile } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { missingCgroups } from "../../src/isolation/app-cgroup.ts";
import { BubblewrapHost } from "../../src/isolation/bubblewrap-host.ts";
import { LiveManager } from "../../src/manager/live-manager.ts";

const MiB = 1024 * 1024;
const bubblewrap = new BubblewrapHost();
const lacks = [...(await bubblewrap.missing()), ...(await missingCgroups())];

/** What ends a snippet: a refusal of the rules, one of Node, one of the kernel, the end of the app, or nothing. */
type End = "denied" | "no code from text" | "isolation" | "killed" | "runs";

interface Snippet {
  name: string;
  /** Statements of a handler. */
  body: string;
  scan: "critical" | "high" | "medium" | "low" | "nothing";
  /** Under a profile that only lets it compute, where the scan has not refused it already. */
  compute: End;
  /** Under the profile low, in namespaces of its own. */
  low: End;
}

const snippets: readonly Snippet[] = [
  { name: "`eval`", body: `return eval("1");`, scan: "high", compute: "no code from text", low: "no code from text" },
  {
    name: "`new Function`",
    body: `return new Function("return 1")();`,
    scan: "high",
    compute: "no code from text",
    low: "no code from text",
  },
  {
    name: "`import.meta.constructor.constructor`",
    body: `return (import.meta as any).constructor.constructor("return process")();`,
    scan: "high",
    compute: "no code from text",
    low: "no code from text",
  },
  {
    name: '`f["con" + "structor"]`',
    body: `const f: any = () => 1; return f["con" + "structor"]["constructor"]("return 1")();`,
    scan: "high",
    compute: "no code from text",
    low: "no code from text",
  },
  {
    name: "`{ constructor: F } = f`",
    body: `const f: any = () => 1; const { constructor: F } = f; return F("return 1")();`,
    scan: "medium",
    compute: "no code from text",
    low: "no code from text",
  },
  {
    name: "`f[k]`, `k` made at run time",
    body: `const f: any = () => 1; const k = [..."rotcurtsnoc"].reverse().join(""); return f[k]("return 1")();`,
    scan: "nothing",
    compute: "no code from text",
    low: "no code from text",
  },
  {
    name: "constructor found by listing properties",
    body: `const p: any = Reflect.getPrototypeOf(() => 1);
      const k = Reflect.ownKeys(p).find((key) => String(key).startsWith("constr"))!; return p[k]("return 1")();`,
    scan: "nothing",
    compute: "no code from text",
    low: "no code from text",
  },
  {
    name: "constructor of async functions by descriptor",
    body: `const all: any = Object.getOwnPropertyDescriptors(Reflect.getPrototypeOf(async () => 1)!);
      return (Object.values(all).find((one: any) => typeof one.value === "function") as any).value("return 1")();`,
    scan: "nothing",
    compute: "no code from text",
    low: "no code from text",
  },
  {
    name: "a program started by a computed import",
    body: `const cp = await import(String("node:child_process")); return cp.spawnSync("true").status;`,
    scan: "medium",
    compute: "denied",
    low: "runs",
  },
  {
    name: "a program started by `process.getBuiltinModule`",
    body: `return process.getBuiltinModule("child_process").spawnSync("true").status;`,
    scan: "high",
    compute: "denied",
    low: "runs",
  },
  {
    name: "reading /etc/passwd",
    body: `const fs = await import(String("node:fs")); return fs.readFileSync("/etc/passwd", "utf8").length;`,
    scan: "medium",
    compute: "denied",
    low: "isolation",
  },
  {
    name: "changing its own sources",
    body: `const fs = await import(String("node:fs")); fs.writeFileSync(import.meta.filename, "");`,
    scan: "medium",
    compute: "denied",
    low: "isolation",
  },
  {
    name: "a connection to a port of the machine",
    body: `return (await fetch("http://127.0.0.1:9/")).status;`,
    scan: "medium",
    compute: "denied",
    low: "isolation",
  },
  {
    name: "`process.kill` of another process",
    body: `return process.kill(${process.pid}, 0);`,
    scan: "high",
    compute: "denied",
    low: "isolation",
  },
  {
    name: "`process.binding`",
    body: `return Object.keys((process as any).binding("fs")).length;`,
    scan: "critical",
    compute: "denied",
    low: "runs",
  },
  {
    name: "a thread without the rules",
    body: `const { Worker } = await import(String("node:worker_threads"));
      return new Promise((done) => new Worker("0", { eval: true }).once("exit", done));`,
    scan: "medium",
    compute: "denied",
    low: "runs",
  },
  {
    name: "reading `process.env`",
    body: `return Object.keys(process.env).length;`,
    scan: "low",
    compute: "runs",
    low: "runs",
  },
  {
    name: "changing `Object.prototype`",
    body: `(Object.prototype as any).polluted = 1; delete (Object.prototype as any).polluted;`,
    scan: "high",
    compute: "runs",
    low: "runs",
  },
  { name: "`for (;;)`", body: `for (;;);`, scan: "medium", compute: "killed", low: "killed" },
  {
    name: "a loop that only looks as if it ended",
    body: `for (let at = 1; at > 0; at += 0);`,
    scan: "nothing",
    compute: "killed",
    low: "killed",
  },
  {
    name: "a slow regular expression",
    body: `return /^(a+)+$/.test("a".repeat(60) + "!");`,
    scan: "medium",
    compute: "killed",
    low: "killed",
  },
  {
    name: "filling the memory",
    body: `for (let at = 0; at < 1e6; at += 1) state.kept.push(Buffer.alloc(${4 * MiB}, 1));`,
    scan: "nothing",
    compute: "killed",
    low: "killed",
  },
];

const high = builtInProfiles.find(({ name }) => name === "high");
if (high === undefined) throw new Error("There is no profile high");
const { name: _, egress: __, ...terms } = high;
/** What `high` allows at run time, for code that its scan would refuse before that. */
const compute: CustomProfile = { ...terms, isolation: "low", restrictedModules: [...terms.restrictedModules] };

const files = mkdtempSync(join(tmpdir(), "atoll-live-"));
afterAll(() => rmSync(files, { recursive: true, force: true }));
const handlers = snippets.map(({ body }, at) => `async work${at}(state) { ${body} }`).join(",\n");
mkdirSync(join(files, "src"));
writeFileSync(
  join(files, "src/app.ts"),
  `import { defineSupervisor } from "@atoll/live/app"; import { probe } from "./probe.ts";
   export default defineSupervisor({ maxRestarts: 1_000, children: [{ id: "probe", start: [probe] }] });`,
);
writeFileSync(
  join(files, "src/probe.ts"),
  `import { defineService } from "@atoll/live/app";
   export const probe = defineService({ init: () => ({ kept: [] as Buffer[] }), call: { ${handlers} } });`,
);
const manager = new LiveManager({ hosts: [bubblewrap], stateDir: join(files, "state"), profiles: { compute } });
afterAll(() => manager[Symbol.asyncDispose]());

/** Resolves when the process of an app has been started again. */
function untilStarted(id: string): Promise<void> {
  return new Promise((resolve) => {
    const stop = manager.onEvent((event) => {
      if (event.app !== id || event.type !== "app.state" || event.state !== "running") return;
      stop();
      resolve();
    });
  });
}

async function endOf(id: string, at: number): Promise<End> {
  try {
    await manager.call(id, "probe", `work${at}`);
    return "runs";
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code === "permission_denied") return "denied";
    if (message.includes("Code generation from strings disallowed")) return "no code from text";
    if (code === "handler_failed") return "isolation";
    await untilStarted(id);
    return "killed";
  }
}

test.for(snippets)("the scan of $name", ({ body, scan }) => {
  expect(worstOf(scanModule("a.ts", `export async function f(state: any) { ${body} }`)) ?? "nothing").toBe(scan);
});

describe.skipIf(lacks.length > 0)("hostile code", { timeout: 120_000 }, () => {
  beforeAll(async () => {
    const limits = { unresponsiveMs: 1_500 };
    const options = { typeCheck: "off", maxRestarts: 1_000, limits } as const;
    await manager.create("compute", files, { ...options, profile: "compute" });
    await manager.create("low", files, { ...options, profile: "low" });
  }, 60_000);

  test("the profile high refuses a module with such findings before it runs", async () => {
    await expect(manager.create("high", files, { profile: "high", typeCheck: "off" })).rejects.toMatchObject({
      code: "permission_denied",
      phase: "scan",
    });
  });

  test.for(["compute", "low"] as const)("what stops each under %s", async (profile) => {
    const ends: Record<string, End> = {};
    for (const [at, { name }] of snippets.entries()) ends[name] = await endOf(profile, at);
    expect(ends).toEqual(Object.fromEntries(snippets.map((snippet) => [snippet.name, snippet[profile]])));
  });
});

test("the documentation has the same table", () => {
  const page = readFileSync(new URL("../../../../docs/security.md", import.meta.url), "utf8");
  const cells = (line: string): string[] => line.split("|").map((cell) => cell.trim());
  const rows = page.split("\n").filter((line) => line.startsWith("|"));
  for (const { name, scan, compute: atHigh, low } of snippets) {
    const row = rows.map(cells).find(([, first]) => first === name);
    expect(row?.slice(1, 5)).toEqual([name, scan, atHigh, low]);
  }
});
