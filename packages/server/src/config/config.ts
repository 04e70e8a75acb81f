import { fileURLToPath } from "node:url";
import { AlertSettings } from "@atoll/guard";
import {
  AccessPolicy,
  AskedLimits,
  AuditLevel,
  CustomProfile,
  DriverName,
  ProfileName,
  TemplateName,
} from "@atoll/protocol";
import { StoreConfig } from "@atoll/storage";
import { z } from "zod";

const MiB = 1024 * 1024;

/** The guest program that set-up builds in this checkout. */
const builtGuest = fileURLToPath(new URL("../../../../.cache/atoll-guest", import.meta.url));

const absolutePath = z.string().regex(/^\//, "an absolute path");
const origin = z.string().regex(/^https?:\/\/[^/]+$/, "an origin such as https://example.com");

/** The place of a store. When it is left out, the server uses a directory of its own. */
const StoreSetting = z.union([z.literal("none"), absolutePath, StoreConfig], {
  error: ({ input, errors }) =>
    typeof input === "object" && input !== null
      ? z.prettifyError(new z.ZodError((errors as z.core.$ZodIssue[][]).at(-1) ?? []))
      : "an absolute path, a store as JSON (docs/storage.md), or none",
});
export type StoreSetting = z.output<typeof StoreSetting>;

/**
 * All settings of the server with their defaults. Each name is also a flag (`--data-dir`) and a variable
 * (`ATOLL_DATA_DIR`).
 */
export const Config = z.strictObject({
  host: z.string().min(1).default("127.0.0.1").describe("address to listen on; the default is for this machine only"),
  port: z.int().min(0).max(65_535).default(4600).describe("port to listen on; 0 takes a free one"),
  publicUrl: z
    .string()
    .regex(/^https?:\/\/[^/?#]+$/, "a URL such as https://atoll.example.com, without a path")
    .optional()
    .describe("how clients reach this server, where that is not host and port"),
  dataDir: absolutePath.default("/var/lib/atoll").describe("everything that the server keeps"),
  guestPath: absolutePath.default(builtGuest).describe("the guest program, as set-up builds it"),
  runscPath: absolutePath.optional().describe("runsc, where it is not on the PATH"),
  platform: z
    .enum(["systrap", "ptrace"])
    .optional()
    .describe(
      "how gVisor catches system calls: systrap is faster, ptrace makes timers punctual in idle sandboxes, too",
    ),
  idleTimerSlackMs: z
    .int()
    .min(0)
    .max(10_000)
    .default(250)
    .describe("by how much timers inside may be late while a sandbox is idle; 0: punctual, for 2 % of a core each"),
  cpuWeight: z
    .int()
    .min(1)
    .max(10_000)
    .default(20)
    .describe("what all sandboxes together get while processors are short, where the rest of the machine has 100"),
  cpuFeatures: z
    .array(z.string().regex(/^[a-z0-9_]+$/, "a feature as in /proc/cpuinfo"))
    .min(1)
    .max(1_000)
    .optional()
    .describe(
      "all that sandboxes may see of the processor, so that they can move; a rest needs a runsc that can hide it",
    ),
  guestTimeoutMs: z
    .int()
    .min(300)
    .max(600_000)
    .default(30_000)
    .describe("how long a sandbox may leave a request unanswered before it is reported as unresponsive"),
  logLevel: z
    .enum(["silent", "error", "warn", "info", "debug"])
    .default("info")
    .describe("the lowest level that is logged, as JSON lines on stderr"),
  auditLevel: AuditLevel.default("basic").describe(
    "what the audit log has of sandboxes without a profile: full also reads, none only security",
  ),
  isolateAfterHits: z
    .int()
    .min(0)
    .max(100)
    .default(20)
    .describe("how often a sandbox may reach its limits in ten minutes before it is isolated; 0: any number of times"),
  otlpEndpoint: z
    .string()
    .regex(/^https?:\/\/[^\s?#]+$/, "a URL such as http://localhost:4318")
    .optional()
    .describe("OpenTelemetry collector that gets traces over HTTP; OTEL_EXPORTER_OTLP_ENDPOINT does the same"),
  monitorIntervalMs: z
    .int()
    .min(1_000)
    .max(600_000)
    .default(5_000)
    .describe("the time between two samples of what a sandbox uses"),
  monitorSamples: z.int().min(2).max(100_000).default(360).describe("how many samples of each sandbox are kept"),
  alerts: AlertSettings.optional().describe(
    'a webhook that gets signed alerts, as JSON: {"url":"https://…","secret":"…","kinds":["limit.hit"]}',
  ),
  metadataStore: StoreSetting.optional().describe(
    "facts about persistent sandboxes: a directory, a store as JSON, or none; left out, store in dataDir",
  ),
  checkpointStore: StoreSetting.optional().describe(
    "checkpoints of persistent sandboxes: a directory, a store as JSON, or none",
  ),
  snapshotStore: StoreSetting.optional().describe("snapshots: a directory, a store as JSON, or none"),
  maxSnapshotBytes: z
    .int()
    .min(1024)
    .default(64 * 1024 * MiB)
    .describe("the largest snapshot, as an archive of its files"),
  maxTemplateBytes: z
    .int()
    .min(1024)
    .default(32 * 1024 * MiB)
    .describe("the largest template, as an archive and unpacked"),
  keepCheckpoints: z
    .int()
    .min(1)
    .max(100_000)
    .default(10)
    .describe("how many checkpoints of a sandbox stay, here and stored, the newest"),
  keepCheckpointsForMs: z.int().min(0).default(0).describe("checkpoints that are not older than this stay as well"),
  leaseTtlMs: z
    .int()
    .min(1_000)
    .max(600_000)
    .default(15_000)
    .describe("how long a server that went silent keeps its sandboxes from others"),
  killOnExit: z.boolean().default(false).describe("end all sandboxes when the server stops"),
  pauseOnExit: z.boolean().default(false).describe("pause all sandboxes that can be paused when the server stops"),
  stopTimeoutMs: z.int().min(0).max(600_000).default(10_000).describe("for requests under way when the server stops"),
  pool: z
    .array(
      z.strictObject({
        template: TemplateName.default("host" as TemplateName),
        driver: DriverName.optional(),
        profile: ProfileName.optional(),
        limits: AskedLimits.prefault({}),
        count: z.int().min(1).max(1_000),
      }),
    )
    .max(100)
    .default([])
    .describe('sandboxes that are kept ready, as JSON: [{"count":2}]'),
  profiles: z
    .record(ProfileName, CustomProfile)
    .default({})
    .describe("security profiles beside high, medium and low, or in their place, as JSON (docs/profiles.md)"),
  policy: AccessPolicy.prefault({}).describe(
    'what sandboxes may be given, as JSON: {"drivers":["gvisor","local"]}; ' +
      "left out, gvisor, the internet and the machine",
  ),
  keptCommands: z.int().min(1).max(100_000).default(200).describe("ended commands that are kept of each sandbox"),
  keptLogBytes: z
    .int()
    .min(64 * 1024)
    .default(512 * MiB)
    .describe("output that is kept of one command, and of all ended commands of a sandbox together"),
  portDomains: z
    .array(z.string().regex(/^[a-z0-9.-]+$/i, "a domain name"))
    .max(10)
    .default([])
    .describe("<port>-<sandbox>.<domain> is that port; the names have to lead here"),
  hostNames: z
    .array(z.string().regex(/^[a-z0-9.-]+$/i, "a host name"))
    .max(100)
    .default([])
    .describe("names that requests may be for, beside localhost, addresses and publicUrl; others are refused"),
  publicMetrics: z.boolean().default(false).describe("answer /metrics without a key"),
  corsOrigins: z.array(origin).max(100).default([]).describe("web pages that may call the server from a browser"),
  maxConnections: z.int().min(1).max(1_000_000).default(2_000).describe("open connections"),
  maxBodyBytes: z
    .int()
    .min(1024)
    .max(1024 * MiB)
    .default(32 * MiB)
    .describe("the largest JSON body; files have no such limit"),
  headersTimeoutMs: z.int().min(100).max(600_000).default(10_000).describe("for the headers of a request"),
  bodyTimeoutMs: z.int().min(100).max(600_000).default(30_000).describe("for a JSON body, and for a pause in a stream"),
  // Clients close a stream that is silent for 45 seconds.
  heartbeatMs: z.int().min(50).max(30_000).default(15_000).describe("between signs of life on a quiet stream"),
});
export type Config = z.output<typeof Config>;
export type SettingName = keyof Config;

export const settingNames = Object.keys(Config.shape) as SettingName[];

export function flagName(name: SettingName): string {
  return `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** The names that other programs use for a setting; our own name wins. */
export const standardVariables: Partial<Record<SettingName, string>> = { otlpEndpoint: "OTEL_EXPORTER_OTLP_ENDPOINT" };

export function variableName(name: SettingName): string {
  return `ATOLL_${name.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
}
