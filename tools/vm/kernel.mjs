import { copyFile, mkdir, mkdtemp, readdir, readFile, rename, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { cacheRoot } from "../setup/paths.mjs";
import { presentPackage, unpackPackage } from "./packages.mjs";

/** The kernel modules for the machine's devices and file systems. The modules name their own dependencies. */
const wanted = ["virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "crc32c_generic", "ext4", "overlay"];

/**
 * @typedef {{ image: string, busybox: string, modules: string[] }} Kernel the paths of its parts; the modules are in
 * the order in which they are loaded
 */

/**
 * Takes Debian's kernel, and a static busybox as the first program, out of their packages. Nothing is installed on the
 * host.
 *
 * @param {import("../setup/report.mjs").Report} report
 * @returns {Promise<Kernel>}
 */
export async function fetchKernel(report) {
  const name = await presentPackage("linux-image-amd64", /Depends: (linux-image-\S+)/);
  const cache = join(cacheRoot(), "vm");
  const directory = join(cache, name);
  const found = await openKernel(directory);
  if (found !== undefined) return found;
  return report.step(`Fetching ${name}`, async () => {
    await mkdir(cache, { recursive: true });
    const draft = await mkdtemp(join(cache, "draft-"));
    try {
      await unpackPackage(name, join(draft, "kernel"));
      await unpackPackage("busybox-static", join(draft, "busybox"));
      await gather(draft, join(draft, "gathered"));
      // Another run may have finished first.
      await rename(join(draft, "gathered"), directory).catch((error) => {
        if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
      });
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
    const kernel = await openKernel(directory);
    if (kernel === undefined) throw new Error(`Cannot find the kernel in ${directory}`);
    return kernel;
  });
}

/**
 * @param {string} directory
 * @returns {Promise<Kernel | undefined>}
 */
async function openKernel(directory) {
  const names = await readdir(join(directory, "modules")).catch(() => undefined);
  if (names === undefined) return undefined;
  return {
    image: join(directory, "vmlinuz"),
    busybox: join(directory, "busybox"),
    modules: names.toSorted().map((name) => join(directory, "modules", name)),
  };
}

/**
 * @param {string} draft contains the unpacked packages
 * @param {string} target
 */
async function gather(draft, target) {
  await mkdir(join(target, "modules"), { recursive: true });
  const tree = join(draft, "kernel");
  const images = await readdir(join(tree, "boot"));
  const image = images.find((name) => name.startsWith("vmlinuz-"));
  if (image === undefined) throw new Error("The kernel's package contains no kernel");
  await copyFile(join(tree, "boot", image), join(target, "vmlinuz"));
  await copyFile(join(draft, "busybox", "bin", "busybox"), join(target, "busybox"));
  for (const [index, path] of (await inLoadOrder(join(tree, "lib", "modules"))).entries()) {
    const name = `${String(index).padStart(2, "0")}-${basename(path)}`;
    await copyFile(path, join(target, "modules", name));
  }
}

/**
 * @param {string} directory
 * @returns {Promise<string[]>} the modules, each after those that it depends on
 */
export async function inLoadOrder(directory) {
  const files = await readdir(directory, { recursive: true });
  const paths = new Map(files.filter((path) => path.endsWith(".ko")).map((path) => [moduleName(path), path]));
  /** @type {Set<string>} */
  const ordered = new Set();
  /** @param {string} name */
  const visit = async (name) => {
    const path = paths.get(name);
    if (path === undefined) throw new Error(`The kernel has no module ${name}`);
    const full = join(directory, path);
    const depends = /\0depends=([^\0]*)\0/.exec(await readFile(full, "latin1"))?.[1] ?? "";
    for (const needed of depends.split(",").filter((word) => word !== "")) await visit(needed);
    ordered.add(full);
  };
  for (const name of wanted) await visit(name);
  return [...ordered];
}

/** @param {string} path */
function moduleName(path) {
  return basename(path, ".ko").replaceAll("-", "_");
}
