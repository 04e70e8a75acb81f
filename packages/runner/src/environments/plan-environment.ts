import { SandboxError } from "@atoll/protocol";
import type { PlanEnvironment } from "./environment.ts";

export const planEnvironment: PlanEnvironment = async ({ instance }) => {
  throw new SandboxError("unsupported", `Cannot plan an environment for ${instance.id}: there are no recipes yet`);
};
