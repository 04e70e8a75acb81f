export { isSandboxError, SandboxError, type ErrorCode } from "@atoll/protocol";
export type {
  ApiEvent,
  AuditHead,
  AuditLine,
  AuditPage,
  AuditVerification,
  CommandId,
  CommandInfo,
  CreateKeyInput,
  EgressPolicy,
  EgressPolicyInput,
  FileInfo,
  KeyCreated,
  KeyInfo,
  PortInfo,
  ResolvedProfile,
  SandboxId,
  SandboxInfo,
  SecurityProfile,
  SignalName,
  SnapshotInfo,
  WatchMessage,
} from "@atoll/protocol";
export { Atoll, run, type ListOptions, type RunOnceOptions } from "./client.ts";
export type { CommandHandle, FollowOptions, WaitOptions } from "./commands/command-handle.ts";
export type { CommandResult } from "./commands/command-result.ts";
export type { Commands, RunOptions } from "./commands/commands.ts";
export type { OutputData, OutputDropped, OutputEnded, OutputEvent } from "./commands/output-event.ts";
export { defaultBaseUrl, type ConnectionOptions } from "./connection-options.ts";
export type { WebSocketLike } from "./environment/environment.ts";
export { CommandExitError } from "./errors.ts";
export type { EventOptions } from "./events.ts";
export type { Files, ReadOptions, SignedUrl, WatchOptions, WriteOptions } from "./files/files.ts";
export type { ByteSource } from "./http/exchange.ts";
export type { PtyOptions, Ptys } from "./pty.ts";
export type { CreateOptions, Metrics, MetricsHistory, Timeouts } from "./sandbox-options.ts";
export { Sandbox } from "./sandbox.ts";
export type { TemplateInfo } from "./templates.ts";
