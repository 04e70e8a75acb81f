import { posix } from "node:path";
import { scanModule } from "@atoll/guard";
import remapping from "@jridgewell/remapping";
import { parseSync } from "oxc-parser";
import { transformSync } from "oxc-transform";
import type { Dependency, Diagnostic } from "./artifact.ts";
import { codeFrame, positionOf } from "./code-frame.ts";
import type { CompiledModule } from "./compile-job.ts";
import { compilerId, sha256 } from "./identity.ts";
import { toModuleForm, type ModuleForm } from "./module-form.ts";

/** Compiles one module of an app. `module` is its path from the app's folder. */
export function compileModule(module: string, source: string): CompiledModule {
  if (module.endsWith(".json")) return compileJson(module, source);
  const typeless = transformSync(module, source, { sourcemap: true, target: "es2022", sourceType: "module" });
  const diagnostics = typeless.errors.map((error) => syntaxDiagnostic(module, source, error));
  if (diagnostics.some(({ severity }) => severity === "error")) return { diagnostics };
  let form: ModuleForm;
  try {
    form = toModuleForm(module.replace(/\.\w+$/, ".js"), typeless.code);
  } catch (error) {
    const message = `Cannot rewrite ${module}: ${messageOf(error)}`;
    return {
      diagnostics: [{ file: module, line: 1, column: 1, severity: "error", kind: "syntax", message, frame: "" }],
    };
  }
  const code = form.code.toString();
  const map = remapping(
    [form.code.generateMap({ hires: "boundary", source: "stripped" }) as never, typeless.map as never],
    () => null,
  );
  map.sources = [module];
  const dependencies = [
    ...form.dependencies.map((dependency) => ({ ...dependency, module: resolveModule(module, dependency.specifier) })),
    ...typeDependencies(module, source, new Set(form.dependencies.map(({ specifier }) => specifier))),
  ];
  return {
    artifact: {
      module,
      code,
      map: map.toString(),
      sourceSha256: sha256(source),
      codeSha256: sha256(code),
      dependencies,
      exports: form.exports,
      starExports: form.starSpecifiers.flatMap((specifier) => resolveModule(module, specifier) ?? []),
      findings: scanModule(module, source),
      compiler: compilerId,
    },
    diagnostics,
  };
}

/** The module of the app that a relative specifier names; `null` for packages and modules of Node. */
function resolveModule(importer: string, specifier: string): string | null {
  if (!specifier.startsWith("./") && !specifier.startsWith("../")) return null;
  return posix.join(posix.dirname(importer), specifier);
}

/** Imports that exist for the type checker only. Nothing is loaded for them. */
function typeDependencies(module: string, source: string, atRunTime: ReadonlySet<string>): Dependency[] {
  const { staticImports } = parseSync(module, source, { sourceType: "module" }).module;
  const specifiers = new Set(staticImports.map(({ moduleRequest }) => moduleRequest.value));
  return [...specifiers]
    .filter((specifier) => !atRunTime.has(specifier))
    .map((specifier) => ({ specifier, module: resolveModule(module, specifier), kind: "type", names: [] }));
}

function compileJson(module: string, source: string): CompiledModule {
  try {
    JSON.parse(source);
  } catch (error) {
    return { diagnostics: [jsonError(module, source, messageOf(error))] };
  }
  const getters = `{ get default() { return $default; } }`;
  // An object literal would take `__proto__` for the prototype.
  const value = `JSON.parse(${JSON.stringify(source)})`;
  const code = `(async function* ($import, $export) { $export(${getters}); yield; const $default = ${value};\n})`;
  return {
    artifact: {
      module,
      code,
      map: JSON.stringify({ version: 3, sources: [module], sourcesContent: [source], names: [], mappings: "" }),
      sourceSha256: sha256(source),
      codeSha256: sha256(code),
      dependencies: [],
      exports: ["default"],
      starExports: [],
      findings: [],
      compiler: compilerId,
    },
    diagnostics: [],
  };
}

interface OxcError {
  severity: string;
  message: string;
  labels: { start: number; end: number }[];
}

function syntaxDiagnostic(module: string, source: string, error: OxcError): Diagnostic {
  const [label] = error.labels;
  const position = positionOf(source, label?.start ?? 0);
  return {
    file: module,
    ...position,
    severity: error.severity === "Error" ? "error" : "warning",
    kind: "syntax",
    message: error.message,
    frame: codeFrame(source, position),
  };
}

/** The message of Node names an offset for most mistakes. */
function jsonError(module: string, source: string, message: string): Diagnostic {
  const offset = /position (\d+)/.exec(message)?.[1];
  const position = positionOf(source, offset === undefined ? source.length : Number(offset));
  return { file: module, ...position, severity: "error", kind: "syntax", message, frame: codeFrame(source, position) };
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
