import { z } from "zod";

/** Identifies a sandbox to clients. It stays the same for the sandbox's life, across pauses and servers. */
export const SandboxId = z
  .string()
  .regex(/^[a-z0-9]{20}$/, "a sandbox id is 20 characters of a-z and 0-9")
  .brand<"SandboxId">();
export type SandboxId = z.infer<typeof SandboxId>;

/**
 * Identifies one launch of a sandbox by a driver: new at every start and restore, unique on the host, and never shown
 * to clients.
 */
export const ContainerId = z
  .string()
  .regex(/^atoll-[a-z0-9]{24}$/, "a container id is atoll- and 24 characters of a-z and 0-9")
  .brand<"ContainerId">();
export type ContainerId = z.infer<typeof ContainerId>;

/** The number by which the guest knows a process or connection of its sandbox. */
export const StreamId = z.int().min(1).max(0x7fff_ffff).brand<"StreamId">();
export type StreamId = z.infer<typeof StreamId>;

/** The name of a template in the engine's library. */
export const TemplateName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,62}$/, "a template name is at most 63 characters of a-z, 0-9, '.', '_' and '-'")
  .brand<"TemplateName">();
export type TemplateName = z.infer<typeof TemplateName>;
