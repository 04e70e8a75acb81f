import { posix } from "node:path";
import { describe, expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

/** The packages of ours that each package may use. All arrows point towards protocol. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  host: ["protocol"],
  engine: ["protocol", "host"],
  storage: ["protocol"],
  guard: ["protocol", "host"],
  server: ["protocol", "host", "engine", "storage", "guard"],
  sdk: ["protocol"],
  runner: ["protocol", "host", "sdk"],
  live: ["protocol", "host", "sdk", "guard"],
  cli: ["protocol", "host", "sdk", "runner", "live", "guard"],
};

const scope = "@atoll/";
const files = listFiles();
const packages = [...new Set(files.flatMap((path) => /^packages\/([^/]+)\/package\.json$/.exec(path)?.[1] ?? []))];

function declaredDependencies(name: string): string[] {
  const manifest = JSON.parse(readText(`packages/${name}/package.json`));
  const sections = ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"];
  return sections.flatMap((section) => Object.keys(manifest[section] ?? {}));
}

function importsOf(path: string): string[] {
  const specifiers = /(?:\bfrom|\bimport|\bimport\(|\brequire\()\s*["']([^"']+)["']/g;
  return [...readText(path).matchAll(specifiers)].flatMap((match) => match[1] ?? []);
}

function filesOf(name: string, folder: string): string[] {
  return files.filter((path) => path.startsWith(`packages/${name}/${folder}`) && /\.(ts|tsx|mts|mjs)$/.test(path));
}

const ours = (specifiers: readonly string[]) =>
  specifiers.filter((specifier) => specifier.startsWith(scope)).map((specifier) => specifier.slice(scope.length));

test("the table names exactly the packages that exist", () => {
  expect(Object.keys(allowed).toSorted()).toEqual(packages.toSorted());
});

describe.for(packages)("package %s", (name) => {
  test("declares no package of ours that the table does not allow", () => {
    expect(allowed[name]).toEqual(expect.arrayContaining(ours(declaredDependencies(name))));
  });

  test("imports no package of ours that the table does not allow", () => {
    const used = filesOf(name, "src/").flatMap((path) => ours(importsOf(path)));
    expect(allowed[name]).toEqual(expect.arrayContaining(used));
  });

  test("imports no file outside of itself by path", () => {
    const escapes = filesOf(name, "").flatMap((path) =>
      importsOf(path)
        .filter((specifier) => specifier.startsWith("."))
        .map((specifier) => posix.join(posix.dirname(path), specifier))
        .filter((target) => !target.startsWith(`packages/${name}/`) && !target.startsWith("tools/"))
        .map((target) => `${path} imports ${target}`),
    );
    expect(escapes).toEqual([]);
  });
});

test("protocol runs outside of Node: it imports no module of Node", () => {
  const builtins = filesOf("protocol", "src/").flatMap((path) =>
    importsOf(path)
      .filter((specifier) => specifier.startsWith("node:"))
      .map((specifier) => `${path} imports ${specifier}`),
  );
  expect(builtins).toEqual([]);
});
