import type { CompatFix, Symptoms } from "../compat-fix.ts";
import { fromText } from "./from-text.ts";

interface ShimRow {
  id: string;
  /** The first Python, or the first version of a library, without the name. */
  since: string;
  what: string;
  pattern: RegExp;
  risk?: CompatFix["risk"];
}

const abcNames =
  "Awaitable|Coroutine|AsyncIterable|AsyncIterator|Hashable|Iterable|Iterator|Generator|Reversible|Sized|Container|" +
  "Callable|Collection|Set|MutableSet|Mapping|MutableMapping|MappingView|KeysView|ItemsView|ValuesView|Sequence|" +
  "MutableSequence|ByteString";

const oldAssertions =
  "assertEquals|assertNotEquals|assert_|assert(?:Not)?AlmostEquals|assert(?:Not)?RegexpMatches|assertRaisesRegexp|" +
  "fail(?:Unless|If)\\w*";

/** Matches both ways in which Python says that a module does not have a name. */
const lacks = (module: string, names: string): RegExp =>
  new RegExp(
    `cannot import name '?(?:${names})'? from '${module}[.'(][^\\n]*|` +
      `module '${module}' has no attribute '(?:${names})'`,
  );

/** Names that a newer Python or library has removed, and that the shim gives back. */
const rows: readonly ShimRow[] = [
  {
    id: "collections-abc",
    since: "Python 3.10",
    what: "collections.Mapping and the other abstract classes are those of collections.abc",
    pattern: lacks("collections", abcNames),
  },
  {
    id: "inspect-getargspec",
    since: "Python 3.11",
    what: "inspect.getargspec and formatargspec are made from getfullargspec",
    pattern: lacks("inspect", "getargspec|formatargspec"),
  },
  {
    id: "asyncio-coroutine",
    since: "Python 3.11",
    what: "asyncio.coroutine is made from types.coroutine",
    pattern: lacks("asyncio", "coroutine"),
    risk: "low",
  },
  {
    id: "fractions-gcd",
    since: "Python 3.9",
    what: "fractions.gcd is math.gcd",
    pattern: lacks("fractions", "gcd"),
    risk: "low",
  },
  {
    id: "base64-strings",
    since: "Python 3.9",
    what: "base64.encodestring and decodestring are encodebytes and decodebytes",
    pattern: lacks("base64", "encodestring|decodestring"),
  },
  {
    id: "time-clock",
    since: "Python 3.8",
    what: "time.clock is time.perf_counter",
    pattern: lacks("time", "clock"),
    risk: "low",
  },
  { id: "cgi-escape", since: "Python 3.8", what: "cgi.escape is html.escape", pattern: lacks("cgi", "escape") },
  {
    id: "platform-dist",
    since: "Python 3.8",
    what: "platform.linux_distribution reads os-release",
    pattern: lacks("platform", "linux_distribution|dist"),
    risk: "low",
  },
  {
    id: "html-unescape",
    since: "Python 3.9",
    what: "HTMLParser.unescape is html.unescape",
    pattern: /'\w*HTMLParser\w*' object has no attribute 'unescape'/,
  },
  {
    id: "thread-isalive",
    since: "Python 3.9",
    what: "Thread.isAlive is Thread.is_alive",
    pattern: /'\w*Thread\w*' object has no attribute 'isAlive'/,
  },
  {
    id: "unittest-asserts",
    since: "Python 3.12",
    what: "TestCase.assertEquals and other old names of assertions are their present names",
    pattern: new RegExp(`has no attribute '(?:${oldAssertions})'`),
  },
  {
    id: "unittest-names",
    since: "Python 3.12",
    what: "unittest._TextTestResult is TextTestResult",
    pattern: lacks("unittest", "_TextTestResult"),
  },
  {
    id: "random-sample",
    since: "Python 3.11",
    what: "random.sample takes sets",
    pattern: /Population must be a sequence/,
    risk: "low",
  },
  {
    id: "open-u",
    since: "Python 3.11",
    what: "open takes the mode U, which has been the default since Python 3",
    pattern: /invalid mode: '[rwab+t]*U[rwab+t]*'/,
  },
  { id: "os-errno", since: "Python 3.7", what: "os.errno is the module errno", pattern: lacks("os", "errno") },
  {
    id: "locale-format",
    since: "Python 3.12",
    what: "locale.format is locale.format_string",
    pattern: lacks("locale", "format"),
  },
  {
    id: "pkgutil-impimporter",
    since: "Python 3.12",
    what: "pkgutil.ImpImporter exists, for code that only asks for its type",
    pattern: lacks("pkgutil", "ImpImporter|ImpLoader"),
    risk: "low",
  },
  {
    id: "imp",
    since: "Python 3.12",
    what: "the module imp is made from importlib",
    pattern: /No module named 'imp'/,
    risk: "low",
  },
  {
    id: "jinja-aliases",
    since: "Jinja 3.1",
    what: "environmentfilter and its like are the pass_… decorators, Markup and escape those of markupsafe",
    pattern: lacks(
      "jinja2",
      "(?:environment|context|evalcontext)(?:filter|function)|Markup|escape|soft_unicode|contextfilter",
    ),
  },
  {
    id: "markupsafe-soft",
    since: "MarkupSafe 2.1",
    what: "markupsafe.soft_unicode is soft_str",
    pattern: lacks("markupsafe", "soft_unicode"),
  },
  {
    id: "werkzeug-as-tuple",
    since: "Werkzeug 2.1",
    what: "werkzeug.test.Client.open takes as_tuple, which old versions of Flask pass on",
    pattern: /unexpected keyword argument 'as_tuple'/,
  },
  {
    id: "numpy-aliases",
    since: "NumPy 1.24",
    what: "numpy.float, numpy.int and other old names are the types and functions that they named",
    pattern: lacks(
      "numpy",
      "bool|int|float|complex|object|str|unicode|long|typeDict|float_|complex_|unicode_|string_|Inf|Infinity|infty|" +
        "NaN|PINF|asscalar|product|cumproduct|alltrue|sometrue|in1d|row_stack|trapz",
    ),
  },
];

const removed: readonly CompatFix[] = rows.map(({ id, since, what, pattern, risk = "none" }) => ({
  id,
  layer: "shim",
  languages: ["python"],
  risk,
  why: `${since} removed it, and this code still asks for it.`,
  what,
  ...fromText(pattern),
  plan: () => ({ shim: [id] }),
}));

/** `test_x (app.tests.Case.test_x)`, as Python 3.11 and newer print a test of `app.tests.Case`. */
const newName = /^(\w+) \((.+)\.\1\)$/;

function drifted({ missing, seen }: Symptoms): string | undefined {
  const shortened = new Map(seen.map((id) => [id.replace(newName, "$1 ($2)"), id]));
  const found = missing.find((id) => shortened.has(id) && shortened.get(id) !== id);
  return found === undefined ? undefined : `${found} is called ${shortened.get(found)}`;
}

/** The name of a test is expected, and not there; other tests are called by a line of a docstring. */
function describedByDocs({ missing, seen }: Symptoms): string | undefined {
  const plain = missing.find((id) => /^\w+ \([\w.]+\)$/.test(id));
  const described = seen.find((id) => !/\([\w.]+\)$/.test(id));
  return plain === undefined || described === undefined ? undefined : `${plain} is called by a docstring`;
}

const names: readonly CompatFix[] = [
  {
    id: "unittest-ids",
    layer: "shim",
    languages: ["python"],
    risk: "none",
    why: "Python 3.11 prints the name of a test method twice, and the expected names are those of older versions.",
    what: "unittest prints names of tests as before Python 3.11",
    detect: drifted,
    plan: () => ({ shim: ["unittest-ids"] }),
  },
  {
    id: "unittest-docs",
    layer: "shim",
    languages: ["python"],
    risk: "none",
    why: "Python 3.7 finds a description in docstrings that begin with a line break, and prints it after the name.",
    what: "unittest takes the first line of a docstring as before Python 3.7",
    detect: describedByDocs,
    plan: () => ({ shim: ["unittest-docs"] }),
  },
];

export const shimFixes: readonly CompatFix[] = [...removed, ...names];
