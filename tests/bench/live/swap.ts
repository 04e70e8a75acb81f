import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startHostProcess } from "@atoll/host";
import { BubblewrapHost, GvisorHost, LiveManager, ProcessHost, type AppHost } from "@atoll/live";
import { createServer, createServerModuleRunner, isRunnableDevEnvironment } from "vite";
import type { Check, Comparison } from "../benchmark.ts";
import type { Lab } from "../lab.ts";
import { ServerProcess } from "../server/server-process.ts";
import { percentile } from "../statistics.ts";
import { GeneratedApp } from "./generated-app.ts";

const debounceMs = 20;
const allowedMs = 15;
const allowedGvisorMs = 40;
/** No update takes longer than this on a machine that works. */
const deadlineMs = 30_000;
const tsxProgram = fileURLToPath(import.meta.resolve("tsx/cli"));

/** From the write of a file to the first answer of the new code, in an app of 100 modules whose state has to stay. */
export const swap: Comparison = {
  name: "live.swap",
  title: "file write to new code answering, one of 100 modules, state kept; rival: Vite's module runner",
  unit: "ms",
  better: "lower",
  bar: { of: "ours", is: "at most", value: debounceMs + allowedMs },
  rounds: { full: 40, quick: 5 },
  async run(lab, rounds) {
    const ours = await timeManager(lab, new ProcessHost(), rounds);
    const bubblewrap = new BubblewrapHost();
    const isolated = (await bubblewrap.missing()).length === 0 ? await timeManager(lab, bubblewrap, rounds) : undefined;
    const gvisor = await timeGvisor(lab, rounds);
    const rival = await timeVite(lab, rounds);
    const restarts = Math.max(3, Math.floor(rounds / 8));
    const node = await timeRestarts(lab, restarts, { name: "node", file: "mjs", words: ["--watch", "--no-warnings"] });
    const tsx = await timeRestarts(lab, restarts, { name: "tsx", file: "ts", words: [tsxProgram, "watch"] });
    const p50 = percentile(ours, 0.5);
    const gvisorP50 = percentile(gvisor, 0.5);
    return {
      ours,
      rival,
      checks: [
        faster(p50, "Vite's module runner, which keeps its state by hand", rival),
        faster(p50, "node --watch, which loses the state", node),
        faster(p50, "tsx watch, which loses the state", tsx),
        {
          text: `in gVisor ${describe(gvisor)}; p50 ≤ ${debounceMs + allowedGvisorMs} allowed`,
          isMet: gvisorP50 <= debounceMs + allowedGvisorMs,
        },
      ],
      notes: [isolated === undefined ? "bubblewrap: not on this machine" : `with bubblewrap ${describe(isolated)}`],
    };
  },
};

const describe = (times: readonly number[]): string =>
  `p50 ${percentile(times, 0.5).toFixed(1)}, p95 ${percentile(times, 0.95).toFixed(1)} ms, n = ${times.length}`;

const faster = (p50: number, what: string, times: readonly number[]): Check => ({
  text: `faster than ${what}: ${describe(times)}`,
  isMet: p50 < percentile(times, 0.5),
});

async function timeGvisor(lab: Lab, rounds: number): Promise<number[]> {
  await using server = await ServerProcess.start({ dir: `${lab.dir}/server` });
  await using host = new GvisorHost({ baseUrl: server.url, apiKey: server.key });
  return await timeManager(lab, host, rounds);
}

async function timeManager(lab: Lab, host: AppHost, rounds: number): Promise<number[]> {
  const app = await GeneratedApp.write(`${lab.dir}/app-${host.level}`, 100);
  await using manager = new LiveManager({ hosts: [host] });
  await manager.create("bench", app.folder, {
    autoReload: true,
    debounceMs,
    probationMs: 0,
    typeCheck: "off",
    limits: { cpus: 2 },
  });
  const call = async () => (await manager.call("bench", "s3", "answer")) as { answer: number; calls: number };
  const times: number[] = [];
  let calls = 0;
  for (let round = 1; round <= rounds + 3; round += 1) {
    lab.progress.report(`${host.level}, round ${round} of ${rounds + 3}`);
    await lab.quiet.wait();
    const answer = round + 1;
    const startedAt = performance.now();
    await app.writeService(3, answer);
    for (;;) {
      lab.signal.throwIfAborted();
      const reply = await call();
      calls += 1;
      if (reply.calls !== calls) throw new Error(`The state was lost: ${reply.calls} calls instead of ${calls}`);
      if (reply.answer === answer) break;
      if (performance.now() - startedAt > deadlineMs) throw new Error(`No reload within ${deadlineMs} ms`);
    }
    // The first rounds load code that all later ones use.
    if (round > 3) times.push(performance.now() - startedAt);
  }
  return times;
}

/** The same modules under Vite; what the services are written with is replaced by a few lines of the same shape. */
async function timeVite(lab: Lab, rounds: number): Promise<number[]> {
  const app = await GeneratedApp.write(`${lab.dir}/app-vite`, 100);
  const shim = join(app.folder, "shim.ts");
  await writeFile(
    shim,
    "export const defineService = (d: unknown) => d; export const defineSupervisor = (d: unknown) => d;",
  );
  // This stands for the supervisor. If any importer of the service did not accept it, Vite would load all of it again.
  await app.writeFile(
    "src/main.ts",
    `${app.services.map((service) => `import "./${service}";`).join("\n")}
     import service from "./s3.ts"; export const current = { call: service.call }; export const state = { calls: 0 };
     import.meta.hot?.accept("./s3.ts", (next) => { current.call = next!.default.call; });`,
  );
  const server = await createServer({
    root: app.folder,
    configFile: false,
    logLevel: "silent",
    // Without "hmr" the module runner would not take updates. They need no socket, because it is in this process.
    server: { middlewareMode: true, ws: false },
    appType: "custom",
    resolve: { alias: { "@atoll/live/app": shim } },
    optimizeDeps: { noDiscovery: true },
  });
  try {
    const { ssr } = server.environments;
    if (ssr === undefined || !isRunnableDevEnvironment(ssr)) throw new Error("Vite has no module runner");
    const runner = createServerModuleRunner(ssr);
    interface Main {
      current: { call: { answer: (state: object) => { answer: number } } };
      state: object;
    }
    const main = (await runner.import(join(app.folder, "src/main.ts"))) as Main;
    const times: number[] = [];
    for (let round = 1; round <= rounds + 3; round += 1) {
      lab.progress.report(`Vite, round ${round} of ${rounds + 3}`);
      await lab.quiet.wait();
      const startedAt = performance.now();
      await app.writeService(3, round + 1);
      await until(lab, "update of Vite", () => main.current.call.answer(main.state).answer === round + 1);
      if (round > 3) times.push(performance.now() - startedAt);
    }
    await runner.close();
    return times;
  } finally {
    await server.close();
  }
}

interface Restarter {
  name: string;
  file: "mjs" | "ts";
  /** What Node is started with before the main module. */
  words: readonly string[];
}

/** A program of 100 modules that is started again: from the write of one of them to its first line. */
async function timeRestarts(lab: Lab, rounds: number, { name, file, words }: Restarter): Promise<number[]> {
  const folder = `${lab.dir}/app-${name}`;
  const app = await GeneratedApp.write(folder, 100);
  const names = Array.from({ length: 99 }, (_, at) => `m${at}`);
  const write = (at: number, answer: number): Promise<void> =>
    app.writeFile(`m${at}.${file}`, `export const m${at} = () => "${answer}";\n`);
  for (const at of names.keys()) await write(at, 0);
  await app.writeFile(
    `main.${file}`,
    `${names.map((each) => `import { ${each} } from "./${each}.${file}";`).join("\n")}
     console.log("answer", m3(), [${names.join(", ")}].length); setInterval(() => {}, 1000);`,
  );
  const argv = [...words, `main.${file}`];
  const child = await startHostProcess(process.execPath, argv, { signal: lab.signal, cwd: folder });
  let text = "";
  const reading = (async () => {
    for await (const { data } of child) text += data.toString();
  })();
  try {
    await until(lab, `start of ${name}`, () => text.includes("answer 0 "));
    const times: number[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      lab.progress.report(`${name} watch, round ${round} of ${rounds}`);
      await lab.quiet.wait();
      const startedAt = performance.now();
      await write(3, round);
      await until(lab, `restart of ${name}`, () => text.includes(`answer ${round} `));
      times.push(performance.now() - startedAt);
    }
    return times;
  } finally {
    await child.kill("SIGKILL");
    await reading;
  }
}

/** Looks again at every turn of the event loop. An update that is lost ends the benchmark. */
async function until(lab: Lab, what: string, isTrue: () => boolean): Promise<void> {
  const startedAt = performance.now();
  while (!isTrue()) {
    lab.signal.throwIfAborted();
    if (performance.now() - startedAt > deadlineMs) throw new Error(`No ${what} within ${deadlineMs} ms`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
