import { createHash } from "node:crypto";
import { lstat, mkdir, readlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasErrno } from "@atoll/host";
import { deadlineAfter, SandboxError, TemplateName } from "@atoll/protocol";
import { readAllowedEtc } from "./host-etc.ts";
import { ownEntries } from "./host-skeleton.ts";
import { findPrivateFiles } from "./private-files.ts";
import { publishDirectory } from "./publish-directory.ts";
import { fingerprint, type SkeletonEntry, writeSkeleton } from "./skeleton.ts";
import { readTemplate, type TemplateManifest, writeManifest } from "./template-manifest.ts";
import type { Template } from "./template.ts";

/** The directories of programs and libraries. Except `usr` they are links into it on most hosts. */
const systemDirectories = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"] as const;

/**
 * Directories below `usr` that are not private by their permissions but are about this host: settings of its own
 * programs, often with tokens in them.
 */
const hidden = ["local/etc"];

const buildTimeoutMs = 600_000;

export interface HostTemplateOptions {
  templatesDir: string;
  /** The root of the filesystem to take from. */
  hostRoot: string;
}

/** A directory of the host that sandboxes see, and the layer that hides parts of it. */
interface SystemTree {
  name: string;
  path: string;
  mask: SkeletonEntry[];
}

/**
 * Makes the template of this machine's own programs: a root that we write, with the host's /usr in it, and nothing else
 * of the host. It is named after its contents and never changes, so a sandbox keeps the one it was made with.
 *
 * Sandboxes see only what every user of the host may read below /usr. Programs that are setuid there are so in the
 * sandbox. An upgrade of the host's packages shows in running sandboxes, for the files that they have not written
 * themselves.
 */
export async function makeHostTemplate({ templatesDir, hostRoot }: HostTemplateOptions): Promise<Template> {
  // Several callers share this work, so no caller's signal ends it.
  const signal = deadlineAfter(buildTimeoutMs);
  await mkdir(templatesDir, { recursive: true });
  const { skeleton, trees } = await planHostTemplate({ templatesDir, hostRoot }, signal);
  const manifest: TemplateManifest = {
    version: 1,
    trees: [
      { at: "/", lower: ["root"] },
      ...trees.map(({ name, path, mask }) => ({
        at: `/${name}`,
        lower: mask.length === 0 ? [path] : [maskName(name), path],
      })),
    ],
  };
  const name = nameFor(manifest, [skeleton, ...trees.map(({ mask }) => mask)]);
  const directory = join(templatesDir, name);
  const existing = await readTemplate(directory, name);
  if (existing !== undefined) return existing;
  await publishDirectory(
    directory,
    async (unfinished) => {
      const parts = trees.map(({ name, mask }) => ({ name: maskName(name), entries: mask }));
      for (const { name, entries } of [{ name: "root", entries: skeleton }, ...parts]) {
        if (entries.length === 0) continue;
        await mkdir(join(unfinished, name));
        await writeSkeleton(join(unfinished, name), entries, signal);
      }
      await writeManifest(unfinished, manifest);
    },
    signal,
  );
  const made = await readTemplate(directory, name);
  if (made === undefined) throw new Error(`${directory} was published without its description`);
  return made;
}

function maskName(name: string): string {
  return `mask-${name}`;
}

function nameFor(manifest: TemplateManifest, parts: SkeletonEntry[][]): TemplateName {
  const hash = createHash("sha256").update(JSON.stringify(manifest));
  for (const entries of parts) hash.update(fingerprint(entries));
  return TemplateName.parse(`host-${hash.digest("hex").slice(0, 16)}`);
}

/** Says whether a name is one that `makeHostTemplate` gives. */
export function isHostTemplateName(name: string): boolean {
  return /^host-[0-9a-f]{16}$/.test(name);
}

async function planHostTemplate(
  { templatesDir, hostRoot }: HostTemplateOptions,
  signal: AbortSignal,
): Promise<{ skeleton: SkeletonEntry[]; trees: SystemTree[] }> {
  const skeleton = [...ownEntries];
  const trees: SystemTree[] = [];
  for (const name of systemDirectories) {
    const path = join(hostRoot, name);
    const kind = await kindOf(path);
    if (kind === "link") skeleton.push({ kind: "link", path: name, target: await readlink(path) });
    if (kind !== "directory") continue;
    skeleton.push({ kind: "directory", path: name, mode: 0o755, uid: 0, gid: 0 });
    const found = await findPrivateFiles(path, join(templatesDir, `scan-${name}.json`), signal);
    trees.push({ name, path, mask: await planMask(path, name === "usr" ? [...hidden, ...found] : found) });
  }
  if (!trees.some(({ name }) => name === "usr")) {
    throw new SandboxError(
      "unsupported",
      `Cannot make a template of this host: ${join(hostRoot, "usr")} is not a directory`,
      {
        suggestion: "Import a root filesystem and use that as the template.",
      },
    );
  }
  return { skeleton: [...skeleton, ...(await readAllowedEtc(join(hostRoot, "etc")))], trees };
}

/**
 * Plans a layer that hides paths of the tree below it. Its directories are visible instead of those below, so they get
 * the same attributes.
 */
async function planMask(tree: string, paths: string[]): Promise<SkeletonEntry[]> {
  const entries = new Map<string, SkeletonEntry>();
  for (const path of paths.toSorted()) {
    const parents = parentsOf(path);
    const isCovered = parents.some((parent) => entries.get(parent)?.kind === "whiteout");
    if (isCovered || (await kindOf(join(tree, path))) === "absent") continue;
    for (const parent of parents) {
      if (entries.has(parent)) continue;
      const { mode, uid, gid } = await lstat(join(tree, parent));
      entries.set(parent, { kind: "directory", path: parent, mode: mode & 0o7777, uid, gid });
    }
    entries.set(path, { kind: "whiteout", path });
  }
  return [...entries.values()];
}

/** Returns the directories from the tree itself, which is "", down to the one that the path is in. */
function parentsOf(path: string): string[] {
  const parent = dirname(path);
  return parent === "." ? [""] : [...parentsOf(parent), parent];
}

async function kindOf(path: string): Promise<"absent" | "link" | "directory" | "other"> {
  try {
    const stats = await lstat(path);
    if (stats.isSymbolicLink()) return "link";
    return stats.isDirectory() ? "directory" : "other";
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return "absent";
    throw error;
  }
}
