import { mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { run } from "@atoll/host";
import { afterEach, beforeEach, expect, test } from "vitest";
import { installScript } from "../../src/environments/python/install-script.ts";
import { prepareScript } from "../../src/environments/python/prepare-script.ts";

let directory = "";

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "atoll-scripts-"));
});

afterEach(() => rm(directory, { recursive: true, force: true }));

async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(directory, path)), { recursive: true });
    await writeFile(join(directory, path), content);
  }
}

async function python(program: string, args: readonly string[], input: string): Promise<string> {
  const options = { signal: new AbortController().signal, timeoutMs: 60_000, input };
  const { exitCode, stdout, stderr } = await run(program, args, options);
  if (exitCode !== 0) throw new Error(stderr);
  return stdout;
}

const site = (): string => join(directory, "env/lib/python3.11/site-packages");

async function prepare(more: object = {}): Promise<{ missing: string[] }> {
  const config = {
    root: join(directory, "env"),
    dist: join(directory, "dist"),
    python: "/usr/bin/python3",
    version: "3.11.2",
    minor: "3.11",
    entries: [],
    wheels: [],
    ...more,
  };
  return JSON.parse(await python("/usr/bin/python3", ["-I", "-", JSON.stringify(config)], prepareScript));
}

interface Installed {
  name: string;
  version: string;
  roots: string[];
  version_file: string;
}

async function install(more: object = {}): Promise<Installed> {
  await mkdir(join(directory, "env/bin"), { recursive: true });
  await mkdir(site(), { recursive: true });
  await mkdir(join(directory, "tree"), { recursive: true });
  const config = {
    root: join(directory, "env"),
    site: site(),
    tree: join(directory, "tree"),
    pyproject: {},
    name: "project",
    version: "4.5.0",
    ...more,
  };
  return JSON.parse(await python("/usr/bin/python3", ["-I", "-", JSON.stringify(config)], installScript));
}

test("an environment has links to the packages that were asked for, and their programs", async () => {
  await write({
    "dist/tool/__init__.py": "def main(): print('ran')\n",
    "dist/tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main\n",
    "dist/other/__init__.py": "",
  });
  const { missing } = await prepare({ entries: ["tool", "tool-1.0.dist-info", "absent"] });
  expect(missing).toEqual(["absent"]);
  expect(await readdir(site())).toEqual(["tool", "tool-1.0.dist-info"]);
  expect(await readlink(join(site(), "tool"))).toBe(join(directory, "dist/tool"));
  expect(await python(join(directory, "env/bin/tool"), [], "")).toBe("ran\n");
});

test("an environment sees nothing of the system but the standard library", async () => {
  await prepare();
  const program = "import sys, json\nprint(any('dist-packages' in path for path in sys.path))";
  expect(await python(join(directory, "env/bin/python"), ["-"], program)).toBe("False\n");
});

test("code that was compiled for another Python is left out", async () => {
  await write({ "dist/_fast.cpython-39-x86_64-linux-gnu.so": "", "dist/_ok.cpython-311-x86_64-linux-gnu.so": "" });
  const entries = ["_fast.cpython-39-x86_64-linux-gnu.so", "_ok.cpython-311-x86_64-linux-gnu.so"];
  expect(await prepare({ entries })).toEqual({ missing: [] });
  expect(await readdir(site())).toEqual(["_ok.cpython-311-x86_64-linux-gnu.so"]);
});

test("wheels are unpacked beside the links", async () => {
  const wheel = join(directory, "thing-1.0-py3-none-any.whl");
  const pack =
    `import zipfile\nwith zipfile.ZipFile(${JSON.stringify(wheel)}, "w") as w:\n` +
    `  w.writestr("thing.py", "x = 1"); w.writestr("thing-1.0.data/scripts/run", "")`;
  await python("/usr/bin/python3", ["-"], pack);
  await prepare({ wheels: [wheel] });
  expect(await readdir(site())).toEqual(["thing.py"]);
});

test("a project is importable, with its metadata and its programs", async () => {
  await write({
    "tree/setup.py": `from setuptools import setup
NAME = "my-project"
raise SystemExit("setup.py is read, and not run")
setup(name=NAME, version="1.2.3", package_dir={"": "lib"}, install_requires=["six>=1"],
      entry_points={"console_scripts": ["mine = my_project:main"], "plugins": ["a = my_project:b"]})
`,
    "tree/lib/my_project/__init__.py": "def main(): print('mine')\n",
  });
  expect(await install()).toEqual({
    name: "my-project",
    version: "1.2.3",
    roots: [join(directory, "tree/lib")],
    version_file: "",
  });
  const info = join(site(), "my_project-1.2.3.dist-info");
  expect(await readFile(join(info, "METADATA"), "utf8")).toContain(
    "Name: my-project\nVersion: 1.2.3\nRequires-Dist: six>=1",
  );
  expect(await readFile(join(info, "entry_points.txt"), "utf8")).toContain("[plugins]\na = my_project:b");
  expect(await readFile(join(site(), "atoll_editable.pth"), "utf8")).toBe(`${join(directory, "tree/lib")}\n`);
});

test.for([
  ["setup.cfg", { "tree/setup.cfg": "[metadata]\nname = cfg\nversion = 2.0\n" }, {}, "cfg", "2.0"],
  [
    "pyproject.toml",
    { "tree/src/pkg/__init__.py": "" },
    { pyproject: { project: { name: "pkg", version: "3.0" } } },
    "pkg",
    "3.0",
  ],
  [
    "the source",
    { "tree/pkg/__init__.py": '__version__ = "3.1.dev"\n', "tree/zzz/__init__.py": '__version__ = "9"\n' },
    { name: "pkg" },
    "pkg",
    "3.1.dev",
  ],
  ["the caller, where the project says nothing", { "tree/setup.py": "def broken(" }, {}, "project", "4.5.0"],
] as const)("name and version come from %s", async ([, files, more, name, version]) => {
  await write(files);
  expect(await install(more)).toMatchObject({ name, version });
});

test("a version file that the build would write is written, and an existing one is kept", async () => {
  await write({ "tree/src/pkg/__init__.py": "" });
  const pyproject = { tool: { setuptools_scm: { write_to: "src/pkg/_version.py" } } };
  const { version_file: path } = await install({ pyproject });
  expect(path).toBe("src/pkg/_version.py");
  const file = join(directory, "tree", path);
  expect(await readFile(file, "utf8")).toContain("__version__ = version = '4.5.0'");
  await writeFile(file, "mine");
  expect((await install({ pyproject })).version_file).toBe("");
  expect(await readFile(file, "utf8")).toBe("mine");
});

test("a version file outside of the work tree is not written", async () => {
  await write({ "tree/pkg/__init__.py": "" });
  const pyproject = { tool: { setuptools_scm: { write_to: "../outside.py" } } };
  expect((await install({ pyproject })).version_file).toBe("");
  expect(await readdir(directory)).not.toContain("outside.py");
});
