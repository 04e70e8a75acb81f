import { readFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { expect, test } from "vitest";

const packageRoot = fileURLToPath(new URL("..", import.meta.url));
const manifest = JSON.parse(readFileSync(join(packageRoot, "package.json"), "utf8")) as {
  exports: Record<string, { source: string }>;
  imports: { "#environment": { source: { node: string; default: string } } };
};

/** Every file and every package that an entry imports, directly or not, as a bundler for browsers resolves them. */
function graphOf(entry: string): { files: Set<string>; packages: Set<string> } {
  const files = new Set<string>();
  const packages = new Set<string>();
  const visit = (file: string): void => {
    if (files.has(file)) return;
    files.add(file);
    const imports = /(?:\bfrom|(?<!\.)\bimport|(?<!\.)\bimport\()\s*["']([^"']+)["']/g;
    for (const [, specifier = ""] of readFileSync(file, "utf8").matchAll(imports)) {
      if (specifier.startsWith(".")) visit(join(dirname(file), specifier));
      else if (specifier === "#environment") visit(join(packageRoot, manifest.imports["#environment"].source.default));
      else packages.add(specifier);
    }
  };
  visit(join(packageRoot, entry));
  return { files, packages };
}

test.for(Object.entries(manifest.exports))("the entry %s imports nothing of Node in browsers", ([, entry]) => {
  const { files, packages } = graphOf(entry.source);
  expect([...packages].filter((name) => isBuiltin(name))).toEqual([]);
  expect([...packages].toSorted()).toEqual(["@atoll/protocol", "zod"]);
  expect([...files].map((file) => relative(packageRoot, file))).not.toContain("src/environment/node.ts");
});

test("only the file for Node uses a global of Node", () => {
  const { files } = graphOf(manifest.exports["."]?.source ?? "");
  const named = [...files].filter((file) =>
    /\b(?:process|Buffer|__dirname|setImmediate)\b[.(]/.test(readFileSync(file, "utf8")),
  );
  expect(named).toEqual([]);
});

test("a bundler for browsers bundles the SDK without settings", async () => {
  const output = await build({
    root: packageRoot,
    configFile: false,
    logLevel: "error",
    resolve: { conditions: ["source", "browser", "module", "import"] },
    build: { write: false, minify: false, lib: { entry: join(packageRoot, "src/index.ts"), formats: ["es"] } },
  });
  const [bundle] = Array.isArray(output) ? output : [output];
  if (bundle === undefined || !("output" in bundle)) throw new Error("nothing was built");
  const code = bundle.output.map((chunk) => ("code" in chunk ? chunk.code : "")).join("");
  expect(code).toContain("new WebSocket(");
  expect(code).not.toMatch(/from ["'](?:node:|ws)|import\(["'](?:node:|ws)|process\.env|browser-external/);
});
