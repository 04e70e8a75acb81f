import type { AppInfo } from "@atoll/live";

export const isolationLevels = ["strongest", "gvisor", "bubblewrap", "process"] as const;

/** Says in one line what keeps the app away from the machine. */
export function isolationLine({ isolation, enforcement }: Pick<AppInfo, "isolation" | "enforcement">): string {
  const wall = isolation === "process" ? "process (for code that you trust: this level is no wall)" : isolation;
  return [`isolation ${wall}`, ...enforcement].join("; ");
}
