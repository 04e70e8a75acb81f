export * from "./compiler/artifact.ts";
export type * from "./isolation/app-host.ts";
export * from "./manager/app-options.ts";
export * from "./wire/protocol.ts";
export { ModuleGraph, type GraphProblem } from "./graph/module-graph.ts";
export { GvisorHost, type GvisorHostOptions } from "./isolation/gvisor-host.ts";
export { BubblewrapHost } from "./isolation/bubblewrap-host.ts";
export { ProcessHost } from "./isolation/process-host.ts";
export { runtimeBundle } from "./isolation/runtime-bundle.ts";
export { Connection, RequestFailed, type RuntimeEvent } from "./wire/connection.ts";
export {
  cleanupArtifacts,
  compileApp,
  compileFile,
  incrementalCompile,
  validateArtifacts,
  type ArtifactProblem,
  type CompileOptions,
} from "./compiler/compile.ts";
export { Compiler, type CompilerOptions } from "./compiler/compiler.ts";
export type * from "./events/live-event.ts";
export { checkApp } from "./manager/check-app.ts";
export { LiveManager, type Fault, type HotReload, type LiveManagerOptions, type Work } from "./manager/live-manager.ts";
export { ReloadFailed } from "./manager/reload-failed.ts";
export type { CodeChange, RollbackTarget, Scan } from "./manager/app-code.ts";
export type { BatchOptions, BatchResult } from "./manager/batch.ts";
export * from "./recovery/classify.ts";
export { diagnosticOf } from "./security/code-gate.ts";
export { traceEvents } from "./telemetry/trace-events.ts";
export type { GenerationInfo, ModuleDiff, ModuleHistory } from "./versions/app-versions.ts";
export type { SourcePlace } from "./compiler/source-places.ts";
