import { version } from "./version.ts";

/** Runs one command line. It loads only what it needs, because scripts often ask for the version. */
export async function main(argv: readonly string[]): Promise<void> {
  const [first, ...more] = argv;
  if (more.length === 0 && (first === "--version" || first === "-V")) {
    process.stdout.write(`${version()}\n`);
    return;
  }
  const { runCommandLine } = await import("./run-command-line.ts");
  await runCommandLine(argv);
}
