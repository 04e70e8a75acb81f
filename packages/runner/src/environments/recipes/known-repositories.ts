import type { ParserId } from "../../models/task.ts";

/** What is known of a repository beyond its files, from runs of its tests. Versions are those of the data sets. */
export interface KnownRepository {
  language: "python" | "node";
  parser: ParserId;
  /** Distributions that the tests need, instead of what the files of the repository ask for. */
  packages?: readonly string[];
  /** Pythons to prefer for a version of the repository, the best first. The system's is used when none is there. */
  interpreters?: (version: readonly number[]) => readonly string[];
  /** The line that runs the tests in these files. */
  test: (files: readonly string[], version: readonly number[]) => string;
  env?: Readonly<Record<string, string>>;
  install?: readonly string[];
  build?: readonly string[];
}

const pytest = (files: readonly string[]): string => `pytest -rA ${files.map(quote).join(" ")}`;

const pythonProject = (packages: readonly string[], more: Partial<KnownRepository> = {}): KnownRepository => ({
  language: "python",
  parser: "pytest",
  packages,
  test: pytest,
  ...more,
});

const nodeProject = (
  parser: ParserId,
  test: KnownRepository["test"],
  more: Partial<KnownRepository> = {},
): KnownRepository => ({ language: "node", parser, test, ...more });

const numeric = ["numpy", "pandas", "scipy", "pytest", "setuptools", "packaging"];

export const knownRepositories: Readonly<Record<string, KnownRepository>> = {
  "sympy/sympy": {
    language: "python",
    parser: "sympy",
    // Anything more makes other code run: what numpy or scipy are found for is not what the data set expects.
    packages: ["mpmath"],
    env: { PYTHONWARNINGS: "ignore::UserWarning,ignore::SyntaxWarning" },
    test: (files) => `bin/test -C --verbose ${files.map(quote).join(" ")}`,
  },
  "django/django": {
    language: "python",
    parser: "django",
    packages: ["asgiref", "sqlparse", "pytz", "jinja2", "pyyaml"],
    interpreters: ([major = 0]) => (major < 5 ? ["3.9", "3.8"] : []),
    test: (files) => `./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 ${djangoLabels(files)}`,
  },
  "pallets/flask": pythonProject([
    "werkzeug",
    "jinja2",
    "itsdangerous",
    "click",
    "blinker",
    "python-dotenv",
    "asgiref",
    "greenlet",
    "importlib-metadata",
    "pytest",
    "setuptools",
  ]),
  "psf/requests": pythonProject([
    "urllib3",
    "chardet",
    "charset-normalizer",
    "idna",
    "certifi",
    "pysocks",
    "trustme",
    "pytest",
    "pytest-httpbin",
    "pytest-mock",
    "setuptools",
  ]),
  "pytest-dev/pytest": pythonProject(
    [
      "attrs",
      "iniconfig",
      "pluggy",
      "packaging",
      "py",
      "toml",
      "tomli",
      "six",
      "wcwidth",
      "more-itertools",
      "atomicwrites",
      "exceptiongroup",
      "hypothesis",
      "argcomplete",
      "mock",
      "nose",
      "pygments",
      "requests",
      "xmlschema",
      "setuptools",
    ],
    {
      // Its own rewriting of assertions has to know the syntax trees of the interpreter.
      interpreters: ([major = 0]) => (major < 8 ? ["3.9", "3.8", "3.10"] : []),
    },
  ),
  "pylint-dev/pylint": pythonProject([
    "astroid",
    "isort",
    "mccabe",
    "platformdirs",
    "tomlkit",
    "tomli",
    "toml",
    "dill",
    "appdirs",
    "colorama",
    "typing-extensions",
    "gitpython",
    "pytest",
    "pytest-benchmark",
    "pytest-timeout",
    "setuptools",
  ]),
  "sphinx-doc/sphinx": pythonProject(
    [
      "docutils",
      "jinja2",
      "markupsafe",
      "pygments",
      "snowballstemmer",
      "babel",
      "alabaster",
      "imagesize",
      "requests",
      "packaging",
      "sphinxcontrib-applehelp",
      "sphinxcontrib-devhelp",
      "sphinxcontrib-htmlhelp",
      "sphinxcontrib-jsmath",
      "sphinxcontrib-serializinghtml",
      "sphinxcontrib-qthelp",
      "sphinxcontrib-websupport",
      "html5lib",
      "six",
      "roman",
      "mock",
      "pytest",
      "cython",
      "setuptools",
    ],
    { interpreters: ([major = 0]) => (major < 4 ? ["3.9"] : []) },
  ),
  "pydata/xarray": pythonProject([...numeric, "typing-extensions"]),
  "mwaskom/seaborn": pythonProject([...numeric, "matplotlib"], {
    test: (files) => `pytest --no-header -rA ${files.map(quote).join(" ")}`,
  }),
  "PrismJS/prism": nodeProject("mocha", prismTests),
  "markedjs/marked": nodeProject("auto", () => "./node_modules/.bin/jasmine --no-color --config=jasmine.json"),
  "axios/axios": nodeProject("tap", (files) => `npx mocha -R tap ${files.map(quote).join(" ")}`),
  "vuejs/core": nodeProject(
    "vitest",
    (files) => `pnpm run test ${files.map(quote).join(" ")} --no-watch --reporter=verbose`,
  ),
  "immutable-js/immutable-js": nodeProject("jest", (files) => `npx jest ${files.map(quote).join(" ")} --verbose`, {
    build: ["npm run build"],
  }),
};

/** Prism runs the tests of the languages whose files a patch changes. */
function prismTests(files: readonly string[]): string {
  const languages = files.flatMap((path) => /^tests\/languages\/([^/]+)\//.exec(path)?.[1]?.split("+")[0] ?? []);
  const named = [...new Set(languages)].map((language) => ` --language ${quote(language)}`);
  return `./node_modules/.bin/mocha tests/run.js --reporter json${named.join("")}`;
}

/** Labels of Django's test runner: modules below `tests/`. */
function djangoLabels(files: readonly string[]): string {
  const labels = files.map((path) =>
    path
      .replace(/^tests\//, "")
      .replace(/\.py$/, "")
      .replaceAll("/", "."),
  );
  return [...new Set(labels)].map(quote).join(" ");
}

/** Quotes a word for `bash`. */
export const quote = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;

/** `[3, 0]` of `3.0`. */
export const parseVersion = (text: string): number[] =>
  (/^\d+(\.\d+)*/.exec(text)?.[0] ?? "")
    .split(".")
    .filter((part) => part !== "")
    .map(Number);
