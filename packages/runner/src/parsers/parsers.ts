import { ParserId } from "../models/task.ts";
import { recognise } from "./auto.ts";
import { jestParsers } from "./javascript/jest.ts";
import { karmaParser } from "./javascript/karma.ts";
import { jasmineParser, mochaParser } from "./javascript/mocha.ts";
import { nodeTestParser } from "./javascript/node-test.ts";
import { vitestParser } from "./javascript/vitest.ts";
import { junitParser } from "./junit.ts";
import type { Parser } from "./parser.ts";
import { pytestParsers } from "./python/pytest.ts";
import { sympyParser } from "./python/sympy.ts";
import { unittestParsers } from "./python/unittest.ts";
import { tapParser } from "./tap.ts";

/** For commands whose exit code is all there is: it has no tests, and the grading looks at the exit code. */
const exitCodeParser: Parser = {
  id: "exit-code",
  version: 1,
  parse: () => ({ tests: new Map(), suiteRan: true }),
};

const autoParser: Parser = {
  id: "auto",
  version: 1,
  parse(input) {
    const id = recognise(input);
    return id === undefined ? { tests: new Map(), suiteRan: false } : parserFor(id).parse(input);
  },
};

const parsers = new Map(
  [
    autoParser,
    exitCodeParser,
    ...pytestParsers,
    ...unittestParsers,
    sympyParser,
    junitParser,
    tapParser,
    nodeTestParser,
    mochaParser,
    jasmineParser,
    ...jestParsers,
    vitestParser,
    karmaParser,
  ].map((parser) => [parser.id, parser]),
);

export function parserFor(id: ParserId): Parser {
  const parser = parsers.get(id);
  if (parser === undefined) throw new Error(`There is no parser ${id}`);
  return parser;
}

/**
 * The parsers that data sets name, without the `parse_log_` before them. Absent are those of runners that need a
 * browser, and of other languages.
 */
const named: Readonly<Record<string, ParserId>> = {
  astroid: "pytest-cut",
  astropy: "pytest",
  carbon: "jest-files",
  django: "django",
  flask: "pytest-cut",
  grommet: "jest-files",
  immutable_js: "jest",
  jest: "jest",
  jest_json: "jest",
  karma: "karma",
  marked: "jasmine",
  marshmallow: "pytest-cut",
  matplotlib: "matplotlib",
  prismjs: "mocha",
  pvlib: "pytest-cut",
  pydicom: "pytest-options",
  pylint: "pytest-options",
  pytest: "pytest-cut",
  pytest_options: "pytest-options",
  pytest_v2: "pytest",
  pyvista: "pytest-cut",
  react_pdf: "jest-files",
  requests: "pytest-options",
  scikit: "pytest",
  seaborn: "pytest-cut",
  sphinx: "pytest",
  sqlfluff: "pytest-cut",
  sympy: "sympy",
  tap: "tap",
  vitest: "vitest",
  xarray: "pytest-cut",
};

/** What the rows of older data sets, which name no parser, are read with. */
const byRepository: Readonly<Record<string, ParserId>> = {
  "astropy/astropy": "pytest",
  "axios/axios": "tap",
  "babel/babel": "jest",
  "carbon-design-system/carbon": "jest-files",
  "diegomura/react-pdf": "jest-files",
  "django/django": "django",
  "facebook/docusaurus": "jest",
  "grommet/grommet": "jest-files",
  "immutable-js/immutable-js": "jest",
  "markedjs/marked": "jasmine",
  "marshmallow-code/marshmallow": "pytest-cut",
  "matplotlib/matplotlib": "matplotlib",
  "mrdoob/three.js": "tap",
  "mwaskom/seaborn": "pytest-cut",
  "pallets/flask": "pytest-cut",
  "preactjs/preact": "karma",
  "PrismJS/prism": "mocha",
  "psf/requests": "pytest-options",
  "pvlib/pvlib-python": "pytest-cut",
  "pydata/xarray": "pytest-cut",
  "pydicom/pydicom": "pytest-options",
  "pylint-dev/astroid": "pytest-cut",
  "pylint-dev/pylint": "pytest-options",
  "pytest-dev/pytest": "pytest-cut",
  "pyvista/pyvista": "pytest-cut",
  "scikit-learn/scikit-learn": "pytest",
  "sphinx-doc/sphinx": "pytest",
  "sqlfluff/sqlfluff": "pytest-cut",
  "sympy/sympy": "sympy",
  "vuejs/core": "vitest",
};

/** Our parser for an instance of a data set; `undefined` when there is none. */
export function parserOfDataSet(instance: { logParser?: string | undefined; repo: string }): ParserId | undefined {
  const name = instance.logParser?.replace(/^parse_log_/, "");
  if (name === undefined || name === "") return byRepository[instance.repo];
  return named[name] ?? ParserId.safeParse(name).data;
}
