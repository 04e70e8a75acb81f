import { z } from "zod";
import { CommandId } from "../command.ts";
import { SandboxId } from "../ids.ts";

export const Id = z.strictObject({ id: SandboxId });
export const Command = z.strictObject({ id: SandboxId, commandId: CommandId });
export const Checkpoint = z.strictObject({ id: SandboxId, checkpoint: z.coerce.number().int().min(1) });
export const Port = z.strictObject({ id: SandboxId, port: z.coerce.number().int().min(1).max(65_535) });
export const From = z.strictObject({
  /** Bytes of the common order that are already there. */
  from: z.coerce.number().int().min(0).default(0),
  /**
   * As the command said when these bytes were read: if its sandbox was rolled back since, they are refused with
   * `rolled_back`.
   */
  rollbacks: z.coerce.number().int().min(0).optional(),
  /** Goes on until the command has ended. */
  follow: z
    .enum(["true", "false"])
    .default("true")
    .transform((value) => value === "true"),
});
