import { dirname } from "node:path";
import type { DiskStep } from "./watch-calls.ts";

/** A tree of files: `undefined` is a directory, any other value is the content of a file. */
export type Tree = ReadonlyMap<string, Buffer | undefined>;

/** The content of a file that was not flushed before the power loss. */
const torn = Buffer.from("torn");

/**
 * Returns every tree that may be on disk after a power loss behind the first `done` steps. A change of a name is
 * certain to survive if its directory was flushed after it, and the content of a file if the file was flushed. Any
 * subset of the other changes may survive.
 */
export function treesAfterPowerLoss(before: Tree, steps: readonly DiskStep[], done: number): Tree[] {
  const past = steps.slice(0, done);
  const changes = past.flatMap((step, index) => (step.kind === "flush" ? [] : [{ step, index }]));
  const wasFlushed = (path: string, index: number) =>
    past.slice(index + 1).some((step) => step.kind === "flush" && step.path === path);
  const uncertain = changes.filter(({ step, index }) => !wasFlushed(dirname(step.path), index));
  if (uncertain.length > 12) throw new Error("Too many steps without a flush to try every subset of them");

  return Array.from({ length: 2 ** uncertain.length }, (_, survivors) => {
    const isLost = (index: number) => {
      const place = uncertain.findIndex((change) => change.index === index);
      return place >= 0 && (survivors & (1 << place)) === 0;
    };
    const tree = new Map(before);
    for (const { step, index } of changes) {
      if (!isLost(index)) apply(tree, step, wasFlushed(step.path, index));
    }
    return tree;
  });
}

/** Applies a step. It changes nothing if a step that it depends on was lost. */
function apply(tree: Map<string, Buffer | undefined>, step: DiskStep, isContentSafe: boolean): void {
  if (!tree.has(dirname(step.path))) return;
  switch (step.kind) {
    case "make-directory":
      tree.set(step.path, undefined);
      return;
    case "make-file": {
      const content = Buffer.from(step.content, "base64");
      tree.set(step.path, isContentSafe || content.length === 0 ? content : torn);
      return;
    }
    case "remove":
      for (const path of allAt(tree, step.path)) tree.delete(path);
      return;
    case "rename": {
      const moved = allAt(tree, step.path).map((path) => [path.slice(step.path.length), tree.get(path)] as const);
      for (const path of [...allAt(tree, step.path), ...(moved.length > 0 ? allAt(tree, step.to) : [])])
        tree.delete(path);
      for (const [below, content] of moved) tree.set(step.to + below, content);
      return;
    }
    case "flush":
  }
}

const allAt = (tree: Tree, path: string): string[] =>
  [...tree.keys()].filter((each) => each === path || each.startsWith(`${path}/`));
