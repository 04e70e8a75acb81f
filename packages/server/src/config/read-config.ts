import { readFile } from "node:fs/promises";
import { redact } from "@atoll/guard";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import { Config, flagName, settingNames, standardVariables, variableName, type SettingName } from "./config.ts";
import { parseFlags } from "./flags.ts";

type SettingSource = "flag" | "environment" | "file" | "default";

/** The settings in force, and where each comes from. */
export interface ReadConfig {
  config: Config;
  sources: Record<SettingName, SettingSource>;
  /** The file that was read; absent if there is none. */
  file?: string;
}

/** Where settings are read from; by default the arguments and the environment of this process. */
interface ConfigOrigins {
  argv: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
}

const defaultFile = "/etc/atoll/config.json";

/**
 * Reads the configuration. Flags win over the environment, which wins over the file, which wins over the defaults. An
 * error for a bad value names the setting and where its value comes from.
 */
export async function readConfig(from: Partial<ConfigOrigins> = {}): Promise<ReadConfig> {
  const origins: ConfigOrigins = { argv: process.argv.slice(2), env: process.env, ...from };
  const flags = parseFlags(origins.argv);
  const named = flags.config ?? origins.env["ATOLL_CONFIG"];
  const file = await readConfigFile(named);
  const values: Record<string, unknown> = {};
  const sources = {} as Record<SettingName, SettingSource>;
  for (const name of settingNames) {
    const found = [
      { source: "flag", value: textValue(name, flags.settings.get(name)) },
      { source: "environment", value: textValue(name, origins.env[variableOf(name, origins.env)]) },
      { source: "file", value: file?.settings[name] },
    ] as const;
    const first = found.find(({ value }) => value !== undefined);
    sources[name] = first?.source ?? "default";
    if (first !== undefined) values[name] = first.value;
  }
  const parsed = Config.safeParse(values);
  if (!parsed.success) throw refusal(parsed.error, sources, { env: origins.env, file: file?.path });
  return { config: parsed.data, sources, ...(file === undefined ? {} : { file: file.path }) };
}

/** Returns every setting with its value, without secrets, and its source. It is for `showConfig` and for people. */
export function describeConfig({ config, sources, file }: ReadConfig): Record<string, unknown> {
  return {
    ...(file === undefined ? {} : { file }),
    settings: Object.fromEntries(
      settingNames.map((name) => [name, { value: redact(config[name]) ?? null, from: sources[name] }]),
    ),
  };
}

/** Returns the variable that sets it: our own, or the one that other programs use. */
function variableOf(name: SettingName, env: ConfigOrigins["env"]): string {
  const [ours, standard] = [variableName(name), standardVariables[name]];
  // An empty standard variable counts as not set.
  return env[ours] === undefined && standard !== undefined && env[standard] ? standard : ours;
}

/**
 * Converts the text of flags and variables to the type in the schema. A text that does not fit stays text, and the
 * schema refuses it.
 */
function textValue(name: SettingName, text: string | undefined): unknown {
  if (text === undefined) return undefined;
  switch (settingType(name)) {
    case "integer":
    case "number":
      return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
    case "boolean":
      return text === "true" ? true : text === "false" ? false : text;
    case "array":
      return text.startsWith("[") ? parsedJson(text) : text.split(",").flatMap((part) => part.trim() || []);
    default:
      return text.startsWith("{") ? parsedJson(text) : text;
  }
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const settingTypes = z.toJSONSchema(Config, { io: "input" }).properties ?? {};

function settingType(name: SettingName): unknown {
  const schema = settingTypes[name];
  return typeof schema === "object" ? schema.type : undefined;
}

async function readConfigFile(
  named: string | undefined,
): Promise<{ path: string; settings: Record<string, unknown> } | undefined> {
  const path = named ?? defaultFile;
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (cause) {
    const isAbsent = cause instanceof Error && "code" in cause && cause.code === "ENOENT";
    if (isAbsent && named === undefined) return undefined;
    throw new SandboxError("invalid_argument", `Cannot start: the configuration file ${path} cannot be read`, {
      cause,
    });
  }
  const settings = parseObject(text, path);
  const unknown = Object.keys(settings).find((name) => !(name in Config.shape));
  if (unknown !== undefined) {
    throw new SandboxError(
      "invalid_argument",
      `Cannot start: ${path} has a setting "${unknown}", which does not exist`,
      {
        suggestion: `Settings are ${settingNames.join(", ")}.`,
        details: { field: unknown, file: path },
      },
    );
  }
  return { path, settings };
}

function parseObject(text: string, path: string): Record<string, unknown> {
  try {
    return z.record(z.string(), z.unknown()).parse(JSON.parse(text));
  } catch (cause) {
    throw new SandboxError("invalid_argument", `Cannot start: ${path} is not a JSON object`, { cause });
  }
}

function refusal(
  error: z.ZodError,
  sources: Record<SettingName, SettingSource>,
  { env, file }: { env: ConfigOrigins["env"]; file: string | undefined },
): SandboxError {
  const [issue] = error.issues;
  const field = String(issue?.path[0] ?? "");
  const name = field as SettingName;
  const place = { flag: flagName(name), environment: variableOf(name, env), file, default: "its default" }[
    sources[name]
  ];
  return new SandboxError(
    "invalid_argument",
    `Cannot start: ${issue?.path.join(".") ?? ""} (from ${place}): ${issue?.message ?? "is wrong"}`,
    {
      details: { field, from: sources[name] },
    },
  );
}
