import { z } from "zod";
import { CommandId } from "../command.ts";
import { SandboxId } from "../ids.ts";

export const Id = z.strictObject({ id: SandboxId });
export const Command = z.strictObject({ id: SandboxId, commandId: CommandId });
export const Checkpoint = z.strictObject({ id: SandboxId, checkpoint: z.coerce.number().int().min(1) });
export const Port = z.strictObject({ id: SandboxId, port: z.coerce.number().int().min(1).max(65_535) });
export const From = z.strictObject({
  /** How many bytes, in their common order, the client already has. */
  from: z.coerce.number().int().min(0).default(0),
  /**
   * The command's `rollbacks` when the client read those bytes: if the sandbox was rolled back since, the request fails
   * with `rolled_back`.
   */
  rollbacks: z.coerce.number().int().min(0).optional(),
  /** Whether the stream goes on until the command has ended. */
  follow: z
    .enum(["true", "false"])
    .default("true")
    .transform((value) => value === "true"),
});
