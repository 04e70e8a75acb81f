import { SandboxError } from "@atoll/protocol";
import { Config, flagName, settingNames, type SettingName } from "./config.ts";

export interface Flags {
  /** The values as they were written; the schema interprets them. */
  settings: Map<SettingName, string>;
  config?: string;
}

const byFlag = new Map(settingNames.map((name) => [flagName(name), name]));

/** Parses `--name value` and `--name=value`; a flag without a value is `true`, and `--no-name` is `false`. */
export function parseFlags(argv: readonly string[]): Flags {
  const settings = new Map<SettingName, string>();
  let config: string | undefined;
  const words = [...argv];
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    const [flag = "", ...rest] = word.split("=");
    const inline = rest.length > 0 ? rest.join("=") : undefined;
    const next = (): string => {
      const value = inline ?? (words[0]?.startsWith("--") === false ? words.shift() : undefined);
      if (value === undefined) throw refuse(`${flag} needs a value`, flag);
      return value;
    };
    const negated = flag.startsWith("--no-") ? byFlag.get(`--${flag.slice(5)}`) : undefined;
    const name = byFlag.get(flag) ?? negated;
    if (flag === "--config") config = next();
    else if (name === undefined) throw refuse(`${word} is not one of its flags`, flag);
    else if (negated !== undefined) settings.set(name, "false");
    else if (isSwitch(name)) settings.set(name, inline ?? "true");
    else settings.set(name, next());
  }
  return { settings, ...(config === undefined ? {} : { config }) };
}

export function usage(): string {
  const rows = settingNames.map((name) => {
    const { description = "" } = Config.shape[name];
    const initial = Config.shape[name].safeParse(undefined).data;
    const text = initial === undefined || typeof initial === "object" ? "" : ` (${initial})`;
    return [flagName(name), `${description}${text}`] as const;
  });
  const all = [
    ["--config", "a JSON file with settings (/etc/atoll/config.json)"] as const,
    ...rows,
    ["--doctor [--json]", "report what this machine offers and what it lacks, and exit"] as const,
  ];
  const width = Math.max(...all.map(([flag]) => flag.length));
  const lines = all.map(([flag, text]) => `  ${flag.padEnd(width)}  ${text}`);
  return ["Usage: atoll up [flags], or npm start -- [flags]", "", ...lines].join("\n");
}

function isSwitch(name: SettingName): boolean {
  return typeof Config.shape[name].safeParse(undefined).data === "boolean";
}

function refuse(what: string, field: string): SandboxError {
  return new SandboxError("invalid_argument", `Cannot start: ${what}`, {
    suggestion: "`atoll up --help` lists them.",
    details: { field },
  });
}
