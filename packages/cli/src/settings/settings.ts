import type { Environment } from "../environment.ts";
import { readCredentials, type CredentialName } from "./credentials.ts";

type SettingSource = "flag" | "environment" | "file" | "default";

interface Setting {
  value: string | undefined;
  source: SettingSource;
}

export type Settings = Record<CredentialName, Setting>;

const defaultUrl = "http://127.0.0.1:4600";

/** Finds the server's address and the key: flags win over the environment, and the environment over the file. */
export async function readSettings(
  flags: { url?: string | undefined; key?: string | undefined },
  environment: Environment,
): Promise<Settings> {
  const file = await readCredentials(environment.credentialsPath);
  return {
    url: firstOf(flags.url, environment.apiUrl, file.url, defaultUrl),
    key: firstOf(flags.key, environment.apiKey, file.key, undefined),
  };
}

function firstOf(
  flag: string | undefined,
  variable: string | undefined,
  stored: string | undefined,
  fallback: string | undefined,
): Setting {
  if (flag !== undefined) return { value: flag, source: "flag" };
  if (variable !== undefined) return { value: variable, source: "environment" };
  if (stored !== undefined) return { value: stored, source: "file" };
  return { value: fallback, source: "default" };
}
