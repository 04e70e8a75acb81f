import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Sandbox } from "@atoll/engine";
import { ProfileBook } from "@atoll/guard";
import { writeDurably } from "@atoll/host";
import {
  EgressPolicy,
  Isolated,
  SandboxError,
  SandboxTimeouts,
  SecurityProfile,
  standardProfile,
  type CreateSandbox,
  type SandboxId,
} from "@atoll/protocol";
import { z } from "zod";
import { IdempotencyMark } from "../support/idempotent-calls.ts";

/**
 * What the server knows about a sandbox and the engine does not. It is stored beside the engine's record and removed
 * with the sandbox.
 */
export const SandboxSettings = z.strictObject({
  version: z.literal(1),
  /** The id of the key that created it. */
  owner: z.string(),
  tokenHash: z.string(),
  tokenSalt: z.string().optional(),
  idempotency: IdempotencyMark.optional(),
  /** The time when it was handed out: a sandbox from the pool is older. */
  createdAtMs: z.int(),
  /** The time of the last resume, from which its lifetime counts. */
  resumedAtMs: z.int().optional(),
  /** The number of times that it was rolled back. */
  rollbacks: z.int().optional(),
  labels: z.record(z.string(), z.string()),
  timeouts: SandboxTimeouts,
  /** Its profile as it was when the sandbox was created; absent for the standard one. */
  profile: SecurityProfile.optional(),
  /** How long it ran in total before `resumedAtMs`, where its profile limits that. */
  ranMs: z.int().min(0).optional(),
  egress: EgressPolicy,
  /** The ceiling of the key that set `egress`, as it was then. Older servers did not write it. */
  egressCeiling: EgressPolicy.optional(),
  env: z.record(z.string(), z.string()),
  hold: z.strictObject({ holder: z.string(), who: z.string().optional(), expiresAtMs: z.int() }).optional(),
  publicPorts: z.array(z.int()),
  /** Set while it is isolated. */
  isolated: Isolated.optional(),
  /** True if it exists for one run, and is removed when the server that runs it stops. */
  isOneOff: z.boolean(),
  /** True if it has metadata in the stores, which are authoritative; the settings here are a copy. */
  persistent: z.boolean().default(false),
});
export type SandboxSettings = z.infer<typeof SandboxSettings>;

/** Returns the settings of a sandbox that is handed out now. */
export function newSettings(
  { labels, timeouts, egress, env, persistent }: CreateSandbox,
  {
    profile,
    ...by
  }: Pick<
    SandboxSettings,
    "owner" | "tokenHash" | "tokenSalt" | "idempotency" | "isOneOff" | "egressCeiling" | "profile"
  >,
): SandboxSettings {
  const kept = profile === undefined || profile.name === standardProfile ? {} : { profile };
  return {
    version: 1,
    ...by,
    ...kept,
    createdAtMs: Date.now(),
    labels,
    timeouts,
    egress,
    env,
    publicPorts: [],
    persistent,
  };
}

const standard = new ProfileBook().get(standardProfile);

export function profileOf({ profile }: Pick<SandboxSettings, "profile">): SecurityProfile {
  return profile ?? standard;
}

/** Returns the name of the current holder. */
export function heldBy({ hold }: SandboxSettings): string | undefined {
  return hold !== undefined && hold.expiresAtMs > Date.now() ? hold.holder : undefined;
}

/**
 * The principal that wants to use a sandbox, and the name under which it holds sandboxes, if it has one. Other clients
 * see that name, so it is not enough alone.
 */
export interface Requester {
  who: string;
  holder: string | undefined;
}

/** Throws `in_use` while another client holds it. */
export function assertNotHeldByOther(id: SandboxId, facts: SandboxSettings, { who, holder }: Requester): void {
  const other = heldBy(facts);
  if (other === undefined || (other === holder && (facts.hold?.who ?? who) === who)) return;
  throw new SandboxError("in_use", `Cannot use sandbox ${id}: ${other} holds it`, {
    suggestion: "Try again later, or ask its holder to share it.",
    details: { sandboxId: id, heldBy: other },
  });
}

const factsFile = (sandbox: Pick<Sandbox, "ownerDir">): string => join(sandbox.ownerDir, "sandbox.json");

export async function saveSettings(sandbox: Pick<Sandbox, "ownerDir">, facts: SandboxSettings): Promise<void> {
  await mkdir(sandbox.ownerDir, { recursive: true, mode: 0o700 });
  await writeDurably(factsFile(sandbox), JSON.stringify(facts));
}

/** Returns the settings, or `undefined` if the sandbox was never handed out. */
export async function loadSettings(sandbox: Sandbox): Promise<SandboxSettings | undefined> {
  let text: string;
  try {
    text = await readFile(factsFile(sandbox), "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  return SandboxSettings.parse(JSON.parse(text));
}
