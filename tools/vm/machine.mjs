import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { run, tail } from "../setup/run.mjs";

/** Where the machine has a disk of its own, and where it leaves what the host is to read. */
export const dataDir = "/machine/data";
export const exchangeDir = "/machine/exchange";

const memoryMiB = 4096;
const diskBytes = 16 * 1024 ** 3;

/**
 * @typedef {object} Session
 * @property {string} script for a shell in the machine. The host's files are there under their own paths; what it
 * changes in them is gone with the machine
 * @property {string} kernelArguments
 * @property {string} [processor] for qemu; all that it can emulate if not given
 * @property {number} deadlineMs for everything from the start of the machine to its end
 * @property {AbortSignal} signal
 */

/**
 * Boots a machine on this host's own files, runs a script in it with its output on ours, and removes the machine. Needs
 * no support by the processor: all of it is emulated, and everything in it takes several times as long.
 *
 * @template T
 * @param {import("./kernel.mjs").Kernel} kernel
 * @param {Session} session
 * @param {(exchange: string) => Promise<T>} collect reads what the script has left in `exchangeDir`
 * @returns {Promise<T>}
 */
export async function runInMachine(kernel, session, collect) {
  const directory = await mkdtemp(join(tmpdir(), "atoll-vm-"));
  try {
    const exchange = join(directory, "exchange");
    await mkdir(exchange);
    // The end of the first program would be a panic.
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
 * Resolves when the machine has switched itself off. It is gone in any case when this settles.
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
  // Gone with us, also when we are killed; behind whatever else runs on this host. In a group of its own: an interrupt
  // of the terminal reaches it through us only.
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
    if (messages !== "") console.error(`The last messages of its kernel:\n${tail(messages)}`);
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
