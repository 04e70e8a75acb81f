import { z } from "zod";
import { CommandId } from "../command.ts";
import { SandboxId } from "../ids.ts";

export const Id = z.strictObject({ id: SandboxId });
export const Command = z.strictObject({ id: SandboxId, commandId: CommandId });
export const Port = z.strictObject({ id: SandboxId, port: z.coerce.number().int().min(1).max(65_535) });
export const From = z.strictObject({
  /** Bytes of the common order that are already there. */
  from: z.coerce.number().int().min(0).default(0),
  /** Goes on until the command has ended. */
  follow: z
    .enum(["true", "false"])
    .default("true")
    .transform((value) => value === "true"),
});
