import { expect, test } from "vitest";
import { parseStanzas, topEntries } from "../../src/environments/python/debian-packages.ts";
import { debianNames } from "../../src/environments/python/distribution-names.ts";
import { chooseInterpreter, type Interpreter } from "../../src/environments/python/interpreters.ts";
import { upstreamVersion } from "../../src/environments/python/python-environment.ts";

test("stanzas of apt are read with the first alternative of each dependency", () => {
  const text = `Package: python3-pandas
Version: 1.5.3+dfsg-2
Depends: python3-numpy (>= 1:1.18.5~) | python3 (>> 3.10), python3:any
Description: x

Package: python3-pandas
Version: 1.0-1
`;
  expect([...parseStanzas(text)]).toEqual([
    ["python3-pandas", { version: "1.5.3+dfsg-2", depends: ["python3-numpy", "python3"] }],
  ]);
});

test("the entries of a package are the names directly below the directory of packages", () => {
  const base = "/usr/lib/python3/dist-packages";
  const paths = [base, `${base}/yaml`, `${base}/yaml/a.py`, `${base}/x.so`, `${base}/__pycache__/y`, "/usr/share/z"];
  expect(topEntries(paths)).toEqual(["x.so", "yaml"]);
});

test.for([
  ["PyYAML", "python3-yaml"],
  ["zope.interface", "python3-zope.interface"],
  ["python-dotenv", "python3-dotenv"],
  ["pytest_mock", "python3-pytest-mock"],
])("the package of %s may be %s", ([name, expected]) => {
  expect(debianNames(name ?? "")).toContain(expected);
});

test.for([
  ["1:1.24.2-1+deb12u1", "1.24.2"],
  ["1.5.3+dfsg-2", "1.5.3"],
  ["1.0.0+repack-1", "1.0.0"],
])("Debian's version %s is upstream's %s", ([version, expected]) => {
  expect(upstreamVersion(version ?? "")).toBe(expected);
});

const interpreter = (path: string, origin: Interpreter["origin"], ...version: number[]): Interpreter => ({
  path,
  origin,
  version,
  prefix: "/",
});
const found = [
  interpreter("/h/3.13", "copied", 3, 13, 0),
  interpreter("/h/3.11", "copied", 3, 11, 7),
  interpreter("/usr/bin/python3.11", "system", 3, 11, 2),
  interpreter("/h/3.9", "copied", 3, 9, 18),
];

test.for([
  [undefined, "/usr/bin/python3.11"],
  ["3.11", "/usr/bin/python3.11"],
  ["3.11.7", "/h/3.11"],
  ["3.9", "/h/3.9"],
  ["/h/3.13", "/h/3.13"],
  ["3.1", undefined],
])("the interpreter for %s is %s", ([wish, path]) => {
  expect(chooseInterpreter(found, wish)?.path).toBe(path);
});
