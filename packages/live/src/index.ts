export * from "./compiler/artifact.ts";
export type * from "./isolation/app-host.ts";
export * from "./manager/app-options.ts";
export * from "./wire/protocol.ts";
export { ModuleGraph, type GraphProblem } from "./graph/module-graph.ts";
