export { errorCodes, isSandboxError, SandboxError, type ErrorCode, type SandboxErrorOptions } from "./errors.ts";
export type { SandboxEventMessage } from "./events.ts";
export { ContainerId, SandboxId, StreamId, TemplateName } from "./ids.ts";
export {
  actions,
  assertAccepts,
  nextState,
  sandboxEvents,
  sandboxStates,
  transitions,
  type SandboxAction,
  type SandboxEvent,
  type SandboxState,
} from "./lifecycle.ts";
export { SandboxLimits, type LimitName, type SandboxLimitsInput, type SandboxUsage } from "./limits.ts";
export {
  signalName,
  signalNumbers,
  SpawnRequest,
  type ProcessExit,
  type SignalName,
  type SpawnRequestInput,
} from "./process.ts";
export {
  ContainerRef,
  CreateRequest,
  DriverName,
  EndReason,
  SandboxRecord,
  type CreateRequestInput,
} from "./sandbox.ts";
