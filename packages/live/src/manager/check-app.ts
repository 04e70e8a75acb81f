import { basename, resolve } from "node:path";
import { ProfileBook } from "@atoll/guard";
import type { Diagnostic } from "../compiler/artifact.ts";
import { compileApp } from "../compiler/compile.ts";
import { hasErrors } from "../compiler/compiler.ts";
import { resolveProfile } from "../security/app-profile.ts";
import { gate } from "../security/code-gate.ts";
import { readAppConfig } from "./app-folder.ts";

/**
 * Compiles and scans the app of a folder without running it. Findings of the scan are warnings, or errors where the
 * profile in `live.json` refuses the code.
 */
export async function checkApp(folder: string): Promise<{ ok: boolean; diagnostics: Diagnostic[] }> {
  const path = resolve(folder);
  const book = new ProfileBook();
  const { profile } = await readAppConfig(path, {}, book);
  const { artifacts, diagnostics: mistakes } = await compileApp(path);
  const found = gate(resolveProfile(profile, book), basename(path), artifacts).diagnostics;
  const diagnostics = [...mistakes, ...found];
  return { ok: !hasErrors(diagnostics), diagnostics };
}
