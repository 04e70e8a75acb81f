export {
  CheckpointInfo,
  CheckpointManifest,
  describeCheckpoint,
  LayerId,
  LayerPart,
  ListedCheckpoint,
  MachineNeeds,
  MemoryPart,
  type PhaseTimes,
} from "./checkpoint.ts";
export { deadlineAfter } from "./deadline.ts";
export { firstToAbort } from "./first-to-abort.ts";
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
export { defaultSoftLimit, LimitLevels, type LimitChange, type LimitReading } from "./limit-levels.ts";
export {
  AskedLimits,
  LimitCeilings,
  SandboxLimits,
  type LimitName,
  type SandboxLimitsInput,
  type SandboxUsage,
} from "./limits.ts";
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
  EndedProcess,
  EndReason,
  ImportedRecord,
  SandboxRecord,
  type CreateRequestInput,
} from "./sandbox.ts";
export { AccessPolicy, internetOnly, isolatingDrivers, keyPolicy } from "./access-policy.ts";
export { ApiEvent, leftoverKinds } from "./api-event.ts";
export {
  AuditHead,
  AuditHeadText,
  AuditLine,
  AuditMessage,
  AuditPage,
  AuditProblem,
  AuditQuery,
  AuditVerification,
  type AuditQueryInput,
} from "./audit.ts";
export { Isolated, IsolatedAs, IsolateSandbox, ThreatKind } from "./isolation.ts";
export { CreateKey, KeyCreated, KeyInfo, KeyVerb, keyVerbs, type CreateKeyInput } from "./auth.ts";
export {
  CommandId,
  CommandInfo,
  CommandLine,
  CommandResult,
  CommandState,
  RunCommand,
  RunContent,
  RunOnce,
  type RunCommandInput,
  type RunOnceInput,
  type StdinAccepted,
} from "./command.ts";
export { EgressPolicy, type EgressPolicyInput } from "./egress.ts";
export { FileInfo, WatchLine, WatchMessage } from "./file.ts";
export { ErrorBody, httpHeaders, serverProofHeader, WireError } from "./http.ts";
export { wakesSandbox, type Route } from "./routes/route.ts";
export { routes, type RouteName } from "./routes/routes.ts";
export {
  CreateSandbox,
  ResolvedProfile,
  SandboxInfo,
  SandboxTimeouts,
  type CreateSandboxInput,
  type PortInfo,
  type SandboxCreated,
  type SandboxPage,
  type SandboxForked,
  type SandboxPaused,
  type SandboxResumed,
  type SandboxRolledBack,
  type UpdateSandboxInput,
  ServerRef,
  TakenOver,
} from "./sandbox-api.ts";
export {
  allowsOperation,
  AuditLevel,
  builtInProfiles,
  CustomProfile,
  driversOf,
  HardLimitAction,
  IsolationLevel,
  Operation,
  ProfileLimits,
  ProfileName,
  SecurityProfile,
  standardProfile,
} from "./security-profile.ts";
export { SnapshotInfo, SnapshotName, SnapshotRef } from "./snapshot.ts";
export { binaryHeader, ClientMessage, ServerMessage, websocketProtocol, type ClientMessageInput } from "./websocket.ts";
export { UsageHistory, UsageSample } from "./usage-history.ts";
