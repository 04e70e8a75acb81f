import { readFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ProfileBook } from "@atoll/guard";
import { hasErrno, messageOf } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { z } from "zod";
import { positionOf } from "../compiler/code-frame.ts";
import { resolveProfile, withLimitsOf } from "../security/app-profile.ts";
import { AppConfig, AppId, type AppConfigInput } from "./app-options.ts";

/** The id as it may be used in paths. */
export function checkedId(id: string): string {
  const parsed = AppId.safeParse(id);
  if (parsed.success) return parsed.data;
  throw new SandboxError("invalid_argument", `Cannot use ${JSON.stringify(id).slice(0, 100)} as the id of an app`, {
    suggestion: "Use lower-case letters, digits, '_' and '-', at most 64, and begin with a letter or a digit.",
  });
}

/** The configuration of an app: the given options, else what `live.json` of its folder has, else the defaults. */
export async function readAppConfig(
  folder: string,
  options: AppConfigInput,
  book = new ProfileBook(),
): Promise<AppConfig> {
  const path = join(folder, "live.json");
  const text = await readConfigFile(folder, path);
  const fromFile = text === undefined ? {} : parseFile(path, text);
  const limits = { ...fromFile.limits, ...options.limits };
  const parsed = AppConfig.safeParse({ ...fromFile, ...options, limits });
  if (!parsed.success) throw invalid("the options of the app", undefined, parsed.error);
  const profile = resolveProfile(parsed.data.profile, book);
  return AppConfig.parse(withLimitsOf(profile, { ...fromFile, ...options, limits }));
}

async function readConfigFile(folder: string, path: string): Promise<string | undefined> {
  const isFolder = await stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isFolder) {
    throw new SandboxError("not_found", `Cannot find the folder ${resolve(folder)} of the app`, {
      suggestion: "Give the path of a folder that contains src/app.ts, or a live.json that names its entry.",
    });
  }
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return undefined;
    throw new SandboxError("file_error", `Cannot read ${path}: ${messageOf(error)}`, { cause: error });
  }
}

function parseFile(path: string, text: string): AppConfigInput {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    const offset = /position (\d+)/.exec(messageOf(error))?.[1];
    const place = positionOf(text, offset === undefined ? text.length : Number(offset));
    const where = `${path}:${place.line}:${place.column}`;
    throw new SandboxError("invalid_argument", `Cannot read ${where}: it is no JSON: ${messageOf(error)}`, {
      suggestion: "Correct the file: it has to be one JSON object.",
      details: { file: path, ...place },
    });
  }
  const parsed = AppConfig.safeParse(json);
  if (!parsed.success) throw invalid(path, text, parsed.error);
  return json as AppConfigInput;
}

function invalid(source: string, text: string | undefined, { issues }: z.ZodError): SandboxError {
  const facts = issues.map(({ path, message, ...issue }) => {
    const keys = "keys" in issue ? issue.keys : [];
    const field = [...path, ...keys.slice(0, 1)].map(String);
    const line = text === undefined ? undefined : lineOf(text, field);
    return { field: field.join("."), message, ...(line === undefined ? {} : { line }) };
  });
  const [first] = facts;
  const where = first?.line === undefined ? source : `${source}:${first.line}`;
  const more = facts.length > 1 ? ` (and ${facts.length - 1} more)` : "";
  const message = `Cannot use ${where}: ${first?.field === "" ? "the file" : first?.field}: ${first?.message}${more}`;
  return new SandboxError("invalid_argument", message, {
    suggestion: "Correct the field, or leave it out to get its default.",
    details: { issues: facts, ...(text === undefined ? {} : { file: source }) },
  });
}

/** The line of a field in the text of an object: each key of its path comes after the one before. */
function lineOf(text: string, field: readonly string[]): number | undefined {
  let at = 0;
  for (const key of field) {
    const found = text.indexOf(JSON.stringify(key), at);
    // An index of an array is no key: its line is that of the array.
    if (found !== -1) at = found;
  }
  return positionOf(text, at).line;
}
