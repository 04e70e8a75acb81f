import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Sandbox } from "@atoll/engine";
import { writeDurably } from "@atoll/host";
import { EgressPolicy, SandboxError, SandboxTimeouts, type CreateSandbox, type SandboxId } from "@atoll/protocol";
import { z } from "zod";
import { IdempotencyMark } from "../support/idempotent-calls.ts";

/**
 * What the server knows about a sandbox and the engine does not. Stored beside the engine's record; it vanishes with
 * the sandbox.
 */
export const SandboxSettings = z.strictObject({
  version: z.literal(1),
  /** The id of the key that created it. */
  owner: z.string(),
  tokenHash: z.string(),
  tokenSalt: z.string().optional(),
  idempotency: IdempotencyMark.optional(),
  /** When it was handed out: one from the pool is older. */
  createdAtMs: z.int(),
  /** Its lifetime counts from here then. */
  resumedAtMs: z.int().optional(),
  /** How often it was rolled back. */
  rollbacks: z.int().optional(),
  labels: z.record(z.string(), z.string()),
  timeouts: SandboxTimeouts,
  egress: EgressPolicy,
  /** Of the key that set `egress`, as it was then. Absent in what older servers wrote. */
  egressCeiling: EgressPolicy.optional(),
  env: z.record(z.string(), z.string()),
  hold: z.strictObject({ holder: z.string(), who: z.string().optional(), expiresAtMs: z.int() }).optional(),
  publicPorts: z.array(z.int()),
  /** It lives for one run, and for the server that runs it. */
  isOneOff: z.boolean(),
  /** It has metadata in the stores, which are the truth about it; what is here is a copy. */
  persistent: z.boolean().default(false),
});
export type SandboxSettings = z.infer<typeof SandboxSettings>;

/** For one that is handed out now. */
export function newSettings(
  { labels, timeouts, egress, env, persistent }: CreateSandbox,
  by: Pick<SandboxSettings, "owner" | "tokenHash" | "tokenSalt" | "idempotency" | "isOneOff" | "egressCeiling">,
): SandboxSettings {
  return { version: 1, ...by, createdAtMs: Date.now(), labels, timeouts, egress, env, publicPorts: [], persistent };
}

/** Who has it exclusively at this moment. */
export function heldBy({ hold }: SandboxSettings): string | undefined {
  return hold !== undefined && hold.expiresAtMs > Date.now() ? hold.holder : undefined;
}

/**
 * Who wants to use a sandbox: the key or token that asks, and the name under which it holds sandboxes, if it says one.
 * Others are told that name, so it is not enough alone.
 */
export interface Claimant {
  who: string;
  holder: string | undefined;
}

/** Throws `in_use` while somebody else holds it. */
export function assertFreeFor(id: SandboxId, facts: SandboxSettings, { who, holder }: Claimant): void {
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

/** `undefined`: it was never handed out. */
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
