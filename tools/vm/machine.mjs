import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { run, tail } from "../setup/run.mjs";

/** In the machine, `dataDir` is on its own disk, and `exchangeDir` holds the files that the host reads afterwards. */
export const dataDir = "/machine/data";
export const exchangeDir = "/machine/exchange";

const memoryMiB = 4096;
const diskBytes = 16 * 1024 ** 3;

/**
 * @typedef {object} Session
 * @property {string} script runs in a shell in the machine. The host's files have their own paths there; changes to
 * them are lost with the machine
 * @property {string} kernelArguments
 * @property {string} [processor] the processor that qemu emulates; by default one with every feature that qemu has
 * @property {number} deadlineMs limits the time from the start of the machine to its end
 * @property {AbortSignal} signal
 */

/**
 * Boots a machine on this host's own files, runs a script in it, prints the script's output, and removes the machine.
 * No support by the processor is needed: everything is emulated, and so takes several times as long.
 *
 * @template T
 * @param {import("./kernel.mjs").Kernel} kernel
 * @param {Session} session
 * @param {(exchange: string) => Promise<T>} collect reads the files that the script wrote to `exchangeDir`
 * @returns {Promise<T>}
 */
export async function runInMachine(kernel, session, collect) {
  const directory = await mkdtemp(join(tmpdir(), "atoll-vm-"));
  try {
    const exchange = join(directory, "exchange");
    await mkdir(exchange);
    // The kernel would panic if its first program ended.
    const end = "\nsync\necho o > /proc/sysrq-trigger\nwhile :; do read -r line; done\n";
    await writeFile(join(exchange, "session"), `${session.script}${end}`);
    await packInitramfs(directory, kernel);
    await makeDisk(join(directory, "disk"));
    await boot(directory, kernel.image, session);
    return await collect(exchange);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/**
 * @param {string} directory
 * @param {import("./kernel.mjs").Kernel} kernel
 */
async function packInitramfs(directory, { busybox, modules }) {
  const root = join(directory, "initramfs");
  await mkdir(join(root, "bin"), { recursive: true });
  await mkdir(join(root, "modules"));
  await copyFile(fileURLToPath(new URL("init.sh", import.meta.url)), join(root, "init"));
  await chmod(join(root, "init"), 0o755);
  await copyFile(busybox, join(root, "bin", "busybox"));
  for (const path of modules) await copyFile(path, join(root, "modules", basename(path)));
  await runOrThrow("sh", ["-c", 'cd "$1" && find . | bin/busybox cpio -o -H newc > "$1.cpio"', "sh", root]);
}

/** @param {string} path */
async function makeDisk(path) {
  const file = await open(path, "wx");
  try {
    await file.truncate(diskBytes);
  } finally {
    await file.close();
  }
  await runOrThrow("/usr/sbin/mke2fs", ["-q", "-F", "-t", "ext4", path]);
}

/**
 * Resolves when the machine has switched itself off. When the promise settles, the machine is gone in any case.
 *
 * @param {string} directory
 * @param {string} image
 * @param {Session} session
 */
async function boot(directory, image, { kernelArguments, processor = "max", deadlineMs, signal }) {
  const log = join(directory, "kernel.log");
  const share = "security_model=none,multidevs=remap";
  const args = [
    ["-nodefaults", "-no-reboot", "-display", "none", "-nic", "none"],
    ["-accel", "tcg,thread=multi", "-cpu", processor, "-smp", "2", "-m", String(memoryMiB)],
    ["-kernel", image, "-initrd", join(directory, "initramfs.cpio")],
    ["-append", `console=ttyS0 quiet panic=-1 ${kernelArguments}`],
    ["-serial", `file:${log}`, "-serial", "stdio"],
    ["-drive", `file=${join(directory, "disk")},if=virtio,format=raw,cache=unsafe`],
    ["-virtfs", `local,path=/,mount_tag=host,readonly=on,${share}`],
    ["-virtfs", `local,path=${join(directory, "exchange")},mount_tag=exchange,${share}`],
  ].flat();
  const timeout = AbortSignal.timeout(deadlineMs);
  signal.throwIfAborted();
  // The machine ends with us, even when we are killed, and runs with lower priority than everything else on this host.
  // It has a process group of its own, so that an interrupt of the terminal reaches it through us only.
  const child = spawn("/usr/bin/setpriv", ["--pdeathsig", "KILL", "nice", "-n", "10", "qemu-system-x86_64", ...args], {
    stdio: ["ignore", "inherit", "inherit"],
    detached: true,
  });
  const gone = once(child, "exit");
  const stop = AbortSignal.any([signal, timeout]);
  const kill = () => child.kill("SIGKILL");
  stop.addEventListener("abort", kill);
  try {
    const [exitCode] = await gone;
    signal.throwIfAborted();
    if (timeout.aborted) throw new Error(`The machine was stopped: it ran for more than ${deadlineMs} ms`);
    if (exitCode !== 0) throw new Error(`Cannot run the machine: qemu ended with ${exitCode}`);
  } catch (error) {
    const messages = await readFile(log, "utf8").catch(() => "");
    if (messages !== "") console.error(`The last messages of the machine's kernel:\n${tail(messages)}`);
    throw error;
  } finally {
    stop.removeEventListener("abort", kill);
  }
}

/**
 * @param {string} file
 * @param {readonly string[]} args
 */
async function runOrThrow(file, args) {
  const { exitCode, output } = await run(file, args);
  if (exitCode !== 0) throw new Error(`${file} ended with ${exitCode}:\n${tail(output)}`);
}
