import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { doctor, Engine, formatDoctor, type Sandbox } from "@atoll/engine";
import { guestBinaryPath } from "./setup/guest.mjs";

/** Shows the engine at work: one sandbox, a few commands, and the time and memory that each step takes. */

const dataDir = process.env["ATOLL_DATA_DIR"] ?? join("/var/tmp", `atoll-demo-${process.pid}`);

function line(text = ""): void {
  process.stdout.write(`${text}\n`);
}

async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const startedMs = performance.now();
  const result = await work();
  line(`${what.padEnd(52)} ${(performance.now() - startedMs).toFixed(1).padStart(8)} ms`);
  return result;
}

async function show(sandbox: Sandbox, argv: string[]): Promise<void> {
  const shown = argv.length === 3 && argv[1] === "-c" ? `${argv[0]} -c '${argv[2]}'` : argv.join(" ");
  let output = "";
  const exit = await timed(`$ ${shown}`.slice(0, 52), async () => {
    const started = await sandbox.spawn({ argv });
    for await (const { data } of started) output += data.toString();
    return started.wait();
  });
  for (const text of output.trimEnd().split("\n")) if (text !== "") line(`    ${text}`);
  if (exit.exitCode !== 0) line(`    (${exit.signal ?? `exit code ${exit.exitCode}`})`);
}

async function main(): Promise<void> {
  const report = await doctor({ guestPath: guestBinaryPath(), dataDir });
  if (report.findings.some(({ status }) => status === "missing")) {
    line(formatDoctor(report));
    process.exitCode = 1;
    return;
  }
  await mkdir(dataDir, { recursive: true });
  const engine = await timed("engine opened", () => Engine.open({ dataDir, guestPath: guestBinaryPath() }));
  try {
    const sandbox = await timed("sandbox created (gVisor)", () => engine.create());
    line();
    await show(sandbox, ["sh", "-c", "echo hello from $(uname -s) $(uname -r), I am $(id -un)"]);
    await show(sandbox, [
      "python3",
      "-c",
      "import sys; print(f'2**100 is {2**100}, says Python {sys.version.split()[0]}')",
    ]);
    await show(sandbox, ["sh", "-c", "cat /etc/shadow; ls /root; exit 7"]);
    await timed("write and read back 10 MB", async () => {
      const bytes = Buffer.alloc(10_000_000, "atoll");
      await sandbox.files.write("/home/user/file", bytes);
      if (!(await sandbox.files.readAll("/home/user/file")).equals(bytes))
        throw new Error("The file is not what was written");
    });
    await timed("sixteen processes at once", async () => {
      const started = await Promise.all(Array.from({ length: 16 }, () => sandbox.spawn({ argv: ["true"] })));
      await Promise.all(started.map((one) => one.wait()));
    });
    const usage = await sandbox.usage();
    line();
    line(
      `the sandbox uses ${(usage.memoryBytes / 1e6).toFixed(1)} MB of memory ` +
        `and ${(usage.diskBytes / 1e6).toFixed(1)} MB of disk`,
    );
    await timed("sandbox killed, nothing left", () => sandbox.kill());
  } finally {
    await Promise.all(engine.list().map(({ id }) => engine.kill(id)));
    await engine.close();
    if (process.env["ATOLL_DATA_DIR"] === undefined) await rm(dataDir, { recursive: true, force: true });
  }
  line();
  line("What to type next:");
  line("  npm test           runs all tests, with real sandboxes");
  line("  npm run bench      measures Atoll next to raw runsc");
  line("  $EDITOR tools/demo.ts   opens the program that you just ran");
}

await main();
