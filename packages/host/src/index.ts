export { CgroupV1Tree } from "./cgroups/cgroup-v1.ts";
export { CgroupV2Tree } from "./cgroups/cgroup-v2.ts";
export { cpuPeriodMs, type Cgroup, type CgroupLimits, type CgroupTree, type CgroupUsage } from "./cgroups/cgroup.ts";
export { detectCgroups } from "./cgroups/detect-cgroups.ts";
export { pack, type PackOptions } from "./archive/pack.ts";
export { unpack, type UnpackOptions } from "./archive/unpack.ts";
export { syncDirectory, syncFilesystem, writeDurably } from "./files/durable-file.ts";
export {
  defaultEnvironment,
  startHostProcess,
  type HostProcess,
  type HostProcessOptions,
} from "./process/host-process.ts";
export { bootId, isAlive, parseProcessStat, readStartTicks } from "./process/proc-table.ts";
export type { OutputEvent, Process } from "./process/process.ts";
export { run, type RunOptions, type RunResult } from "./process/run.ts";
export { Cleanup } from "./support/cleanup.ts";
export { hasErrno, noSpace } from "./support/errno.ts";
export { messageOf } from "./support/message-of.ts";
export { pollUntil } from "./support/poll-until.ts";
