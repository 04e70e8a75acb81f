import { constants, type Stats } from "node:fs";
import { lstat, open } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { groupLine, passwdLine, sandboxUser } from "./host-accounts.ts";
import type { SkeletonEntry } from "./skeleton.ts";

/** The directories on which sandboxes get filesystems of their own. */
const mountPoints = [
  { path: "proc", mode: 0o555 },
  { path: "dev", mode: 0o755 },
  { path: "sys", mode: 0o555 },
  { path: "tmp", mode: 0o1777 },
];

const mostBytes = 1024 * 1024;
const hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";

/**
 * Plans what a root filesystem lacks to be run as a sandbox: directories to mount on, the default user, a name for the
 * loopback address. It goes into a layer of its own, so that the filesystem itself does not change.
 */
export async function planTopLayer(rootfs: string): Promise<SkeletonEntry[]> {
  const layer = new TopLayer(rootfs);
  await layer.makeDirectory("", { mode: 0o755, uid: 0, gid: 0 });
  for (const { path, mode } of mountPoints)
    await layer.makeDirectory(path, { mode, uid: 0, gid: 0 }, { onlyIfAbsent: true });
  await layer.makeDirectory("etc", { mode: 0o755, uid: 0, gid: 0 });
  const hostsText = await layer.readText("etc/hosts");
  if (!/\blocalhost\b/.test(hostsText)) layer.replaceText("etc/hosts", `${hosts}${hostsText}`);
  await addUser(layer);
  return layer.entries;
}

async function addUser(layer: TopLayer): Promise<void> {
  const { name, uid, gid } = sandboxUser;
  const passwd = await layer.readText("etc/passwd");
  const group = await layer.readText("etc/group");
  if (hasAccount(passwd, name)) return;
  const root = hasAccount(passwd, "root")
    ? ""
    : passwdLine({ name: "root", uid: 0, gid: 0, home: "/root", shell: "/bin/sh" });
  const user = passwdLine({ name, uid, gid, home: await makeHome(layer), shell: await findShell(layer) });
  layer.replaceText("etc/passwd", `${ended(passwd)}${root}${user}`);
  const rootGroup = hasAccount(group, "root") ? "" : groupLine("root", 0);
  const userGroup = hasAccount(group, name) ? "" : groupLine(name, gid);
  layer.replaceText("etc/group", `${ended(group)}${rootGroup}${userGroup}`);
}

async function makeHome(layer: TopLayer): Promise<string> {
  const { uid, gid, home } = sandboxUser;
  const parent = await layer.kindOf("home");
  // Only the sandbox can follow this link.
  if (parent !== "absent" && parent !== "directory") return "/tmp";
  if ((await layer.kindOf("home/user")) === "absent") {
    await layer.makeDirectory("home", { mode: 0o755, uid: 0, gid: 0 });
    await layer.makeDirectory("home/user", { mode: 0o755, uid, gid });
  }
  return home;
}

async function findShell(layer: TopLayer): Promise<string> {
  const kinds = await Promise.all([layer.kindOf("bin/bash"), layer.kindOf("usr/bin/bash")]);
  return kinds.includes("file") ? "/bin/bash" : "/bin/sh";
}

function hasAccount(text: string, name: string): boolean {
  return text.split("\n").some((line) => line.startsWith(`${name}:`));
}

function ended(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}

type Kind = "absent" | "directory" | "file" | "link" | "other";

/** A layer that is being made over an untrusted filesystem: no link of that is followed. */
class TopLayer {
  readonly entries: SkeletonEntry[] = [];
  readonly #base: string;

  constructor(base: string) {
    this.#base = base;
  }

  /** Returns "link" also when a link is in the path. */
  async kindOf(path: string): Promise<Kind> {
    const stats = await this.#inspect(path);
    if (stats === "link" || stats === undefined) return stats ?? "absent";
    if (stats.isDirectory()) return "directory";
    return stats.isFile() ? "file" : "other";
  }

  /** Makes a directory. It hides the owner and mode of one that exists below, so it copies them. */
  async makeDirectory(
    path: string,
    fallback: { mode: number; uid: number; gid: number },
    { onlyIfAbsent = false } = {},
  ): Promise<void> {
    const stats = await this.#inspect(path);
    if (stats === undefined) {
      this.entries.push({ kind: "directory", path, ...fallback });
      return;
    }
    if (onlyIfAbsent) return;
    if (stats === "link" || !stats.isDirectory()) throw unusable(`/${path} is not a directory`);
    this.entries.push({ kind: "directory", path, mode: stats.mode & 0o7777, uid: stats.uid, gid: stats.gid });
  }

  /** Returns an empty text when the file does not exist. */
  async readText(path: string): Promise<string> {
    const stats = await this.#inspect(path);
    if (stats === undefined) return "";
    if (stats === "link" || !stats.isFile() || stats.size > mostBytes)
      throw unusable(`/${path} is not a file of reasonable size`);
    const file = await open(join(this.#base, path), constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      return await file.readFile("utf8");
    } finally {
      await file.close();
    }
  }

  replaceText(path: string, content: string): void {
    this.entries.push({ kind: "file", path, content, mode: 0o644, uid: 0, gid: 0 });
  }

  async #inspect(path: string): Promise<Stats | "link" | undefined> {
    const parts = path === "" ? [] : path.split("/");
    let stats = await lstat(this.#base);
    for (const [index] of parts.entries()) {
      try {
        stats = await lstat(join(this.#base, ...parts.slice(0, index + 1)));
      } catch (error) {
        if (hasErrno(error, "ENOENT", "ENOTDIR")) return undefined;
        throw error;
      }
      if (stats.isSymbolicLink()) return "link";
    }
    return stats;
  }
}

function unusable(reason: string): SandboxError {
  return new SandboxError("invalid_argument", `Cannot use this root filesystem: ${reason}`);
}
