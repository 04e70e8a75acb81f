import { decide, decideImport, worstOf, type Finding, type Refusal } from "@atoll/guard";
import { SandboxError, type SecurityProfile } from "@atoll/protocol";
import type { Artifact, Diagnostic } from "../compiler/artifact.ts";
import { codeFrame, positionOf } from "../compiler/code-frame.ts";
import { sourceOf } from "../compiler/source-places.ts";

export interface GateResult {
  /** All findings, those that refuse a module with severity `error`. */
  diagnostics: Diagnostic[];
  /** Why the code may not be loaded, if it may not. */
  refusal: SandboxError | undefined;
}

/** Decides by the profile of an app whether modules may be loaded: by what the scan found, and by their imports. */
export function gate(profile: SecurityProfile, id: string, artifacts: Iterable<Artifact>): GateResult {
  const diagnostics: Diagnostic[] = [];
  let refused: Refusal | undefined;
  for (const artifact of artifacts) {
    const { module, findings } = artifact;
    const source = sourceOf(artifact);
    for (const finding of findings) {
      const decision = decide({ operation: "code_load", profile, module, severity: finding.severity });
      diagnostics.push(diagnosticOf(finding, source, decision.allowed ? "warning" : "error"));
    }
    const load = decide({ operation: "code_load", profile, module, severity: worstOf(findings) });
    if (!load.allowed) refused ??= load;
    for (const { specifier, module: own, kind } of artifact.dependencies) {
      if (own !== null || kind === "type" || specifier === "@atoll/live/app") continue;
      const decision = decideImport(profile, specifier);
      if (decision.allowed) continue;
      refused ??= decision;
      diagnostics.push(diagnosticOf(restricted(module, specifier, source, decision), source, "error"));
    }
  }
  return { diagnostics, refusal: refused === undefined ? undefined : errorOf(refused, id) };
}

function errorOf({ rule, why, suggestion, details }: Refusal, id: string): SandboxError {
  return new SandboxError("permission_denied", `Cannot load code into ${id}: ${why}`, {
    suggestion,
    details: { rule, ...details },
  });
}

function restricted(file: string, specifier: string, source: string, { why, suggestion }: Refusal): Finding {
  const at = Math.max(source.indexOf(`"${specifier}"`), source.indexOf(`'${specifier}'`), 0);
  return { file, ...positionOf(source, at), severity: "high", rule: "restricted_module", why, fix: suggestion };
}

/** A finding as compilers report mistakes, with the lines around it. */
export function diagnosticOf(finding: Finding, source: string, severity: Diagnostic["severity"]): Diagnostic {
  const { file, line, column, rule, why, fix } = finding;
  const frame = source === "" ? "" : codeFrame(source, { line, column });
  const message = `${finding.severity}: ${why}. ${fix}`;
  return { file, line, column, severity, kind: "scan", code: rule, message, frame };
}
