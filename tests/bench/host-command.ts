import { spawn } from "node:child_process";
import { once } from "node:events";

/** The same small environment that the engine gives to host programs. */
export const hostEnvironment = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  LANG: "C.UTF-8",
};

/** Runs a program to its end and ignores its output. Resolves to the exit code, or to -1 after a signal. */
export async function exitCodeOf(file: string, args: readonly string[]): Promise<number> {
  // The program has its own process group, so that on Ctrl-C only this process acts, and cleans up in order.
  const child = spawn(file, args, { env: hostEnvironment, stdio: "ignore", detached: true });
  const [exitCode] = (await once(child, "exit")) as [number | null];
  return exitCode ?? -1;
}

/** Returns the output of a program that must succeed. */
export async function outputOf(file: string, args: readonly string[], cwd?: string): Promise<string> {
  const child = spawn(file, args, {
    env: hostEnvironment,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    ...(cwd === undefined ? {} : { cwd }),
  });
  const read = async (stream: typeof child.stdout): Promise<string> => {
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    return Buffer.concat(chunks).toString();
  };
  const [stdout, stderr, [exitCode]] = await Promise.all([read(child.stdout), read(child.stderr), once(child, "exit")]);
  if (exitCode !== 0) throw new Error(`Cannot run ${file} ${args.join(" ")}: exit ${exitCode}: ${stderr.trim()}`);
  return stdout;
}
