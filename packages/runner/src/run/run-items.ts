import { SandboxError } from "@atoll/protocol";
import { keyOf } from "../cache/stable-json.ts";
import type { RepoSpec } from "../models/sandbox-config.ts";
import { ParserId } from "../models/task.ts";
import { parserFor } from "../parsers/parsers.ts";
import type { SessionItem } from "../session/session.ts";
import { version } from "../version.ts";
import type { RunItem, RunOptions } from "./run-options.ts";

/** Versions of all parsers: the one that an instance gets is known only when its environment is planned. */
const parserVersions = ParserId.options.map((id) => parserFor(id).version);

const defaultCompat: RepoSpec["compat"] = { mode: "auto", apply: [], never: [], allowBehaviourChanges: false };

/** The items of a run with their names and keys. Rejects an item that is there twice. */
export function sessionItems(options: RunOptions): SessionItem[] {
  const counts = new Map<string, number>();
  for (const { instance } of options.items) counts.set(instance.id, (counts.get(instance.id) ?? 0) + 1);
  const items = options.items.map((item) => sessionItem(item, options, (counts.get(item.instance.id) ?? 0) > 1));
  const labels = new Set<string>();
  for (const { label } of items) {
    if (labels.has(label)) {
      throw new SandboxError("invalid_argument", `Cannot run ${label}: it is there twice`, {
        suggestion: "Give one prediction per instance and model.",
      });
    }
    labels.add(label);
  }
  return items;
}

function sessionItem({ instance, prediction }: RunItem, options: RunOptions, isOneOfMany: boolean): SessionItem {
  const label = fileName(isOneOfMany ? `${instance.id}@${prediction?.model ?? "task"}` : instance.id);
  const repo = instance.task.repo ?? repoOf(instance.repo, instance.baseCommit, options.repos);
  const given = repo?.compat ?? defaultCompat;
  const compat = { ...given, mode: options.compatMode ?? given.mode };
  const key = keyOf({
    version,
    parsers: parserVersions,
    client: options.client.kind,
    instance: { ...instance, problemStatement: "" },
    repo,
    compat,
    fixes: options.fixes?.map(({ id }) => id) ?? [],
    prediction: prediction?.patch ?? null,
    repeat: options.repeat ?? 1,
    seeds: options.seeds ?? [],
    quarantine: options.quarantine ?? [],
  });
  return { label, instance, prediction, repo, compat, key };
}

/** Where an instance comes from that names a repository and not its place. */
function repoOf(name: string, ref: string, mirror: string | undefined): RepoSpec | undefined {
  if (name === "") return undefined;
  const source = mirror === undefined ? { url: `https://github.com/${name}.git` } : { mirror };
  return { ...source, name, ref: ref === "" ? "HEAD" : ref, patches: [], compat: defaultCompat };
}

const fileName = (text: string): string => text.replaceAll(/[^A-Za-z0-9._@-]+/g, "__").replace(/^\.+/, "_");
