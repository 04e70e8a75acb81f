import type { Artifact, Dependency } from "../../src/compiler/artifact.ts";

/** An artifact whose body is written by hand: `$import[n].current.name` for imports, `getters` for exports. */
export function handMade(
  module: string,
  { imports = [], exports, body }: { imports?: (string | Dependency)[]; exports: readonly string[]; body: string },
): Artifact {
  const getters = exports.map(
    (name) => `get ${JSON.stringify(name)}() { return ${name === "default" ? "$default" : name}; }`,
  );
  return {
    module,
    code: `(async function* ($import, $export, $meta) { $export({ ${getters.join(", ")} }); yield; ${body} })`,
    map: "{}",
    sourceSha256: "",
    codeSha256: "",
    dependencies: imports.map((dependency) =>
      typeof dependency === "string"
        ? {
            specifier: dependency,
            module: dependency.startsWith("src/") ? dependency : null,
            kind: "static" as const,
            names: [],
          }
        : dependency,
    ),
    exports: [...exports],
    starExports: [],
    findings: [],
    compiler: "by hand",
  };
}
