/**
 * What the crashing manager does with persistent sandboxes, by names that the test gives them, and the step at which
 * each of them stops.
 */
export type CrashPlan = Record<string, { move: "rollback" | "pause"; step: string }>;
