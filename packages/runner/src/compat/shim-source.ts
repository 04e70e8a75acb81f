/**
 * The run-time shim: one Python module that gives names back which newer versions of Python and of libraries have
 * removed. A `.pth` file of the environment imports it, so a `sitecustomize` of the repository still works. Nothing is
 * changed that still exists, and every name that a program really asks for is appended to a trace.
 */
export const shimSource = String.raw`
"""Names that newer versions have removed, given back when a program asks for them."""
import os
import sys

_traced = set()


def _trace(alias, name):
    if (alias, name) in _traced:
        return
    _traced.add((alias, name))
    try:
        with open(os.environ.get("ATOLL_SHIM_TRACE", os.devnull), "a") as file:
            file.write("%s:%s\n" % (alias, name))
    except (IOError, OSError):
        pass


def _lazy(module, alias, names):
    """Adds names that the module does not have; values are made when they are asked for."""
    before = getattr(module, "__getattr__", None)

    def get(name):
        if name in names:
            try:
                value = names[name]()
            except (ImportError, AttributeError):
                value = None
            if value is not None:
                _trace(alias, "%s.%s" % (module.__name__, name))
                return value
        if before is not None:
            return before(name)
        raise AttributeError("module %r has no attribute %r" % (module.__name__, name))

    module.__getattr__ = get


def _attribute(path, name):
    def get():
        __import__(path)
        return getattr(sys.modules[path], name)
    return get


def _value(value):
    return lambda: value


def _collections(module):
    names = ["Awaitable", "Coroutine", "AsyncIterable", "AsyncIterator", "AsyncGenerator", "Hashable", "Iterable",
             "Iterator", "Generator", "Reversible", "Sized", "Container", "Callable", "Collection", "Set", "MutableSet",
             "Mapping", "MutableMapping", "MappingView", "KeysView", "ItemsView", "ValuesView", "Sequence",
             "MutableSequence", "ByteString"]
    _lazy(module, "collections-abc", {name: _attribute("collections.abc", name) for name in names})


def _inspect_getargspec(module):
    def getargspec(function):
        from collections import namedtuple
        spec = module.getfullargspec(function)
        if spec.kwonlyargs or spec.annotations:
            raise ValueError("Function has keyword-only parameters or annotations, use inspect.signature() instead")
        kind = namedtuple("ArgSpec", "args varargs keywords defaults")
        return kind(spec.args, spec.varargs, spec.varkw, spec.defaults)

    def formatargspec(args, varargs=None, varkw=None, defaults=None, kwonlyargs=(), kwonlydefaults=None,
                      annotations=None, formatarg=str, formatvarargs=lambda name: "*" + name,
                      formatvarkw=lambda name: "**" + name, formatvalue=lambda value: "=" + repr(value),
                      formatreturns=lambda text: " -> " + text, formatannotation=module.formatannotation):
        annotations, kwonlydefaults = annotations or {}, kwonlydefaults or {}

        def one(name):
            text = formatarg(name)
            return text + ": " + formatannotation(annotations[name]) if name in annotations else text

        first = len(args) - len(defaults or ())
        parts = [one(name) + (formatvalue(defaults[index - first]) if index >= first and defaults else "")
                 for index, name in enumerate(args)]
        if varargs is not None:
            parts.append(formatvarargs(one(varargs)))
        elif kwonlyargs:
            parts.append("*")
        parts += [one(name) + (formatvalue(kwonlydefaults[name]) if name in kwonlydefaults else "")
                  for name in kwonlyargs]
        if varkw is not None:
            parts.append(formatvarkw(one(varkw)))
        end = formatreturns(formatannotation(annotations["return"])) if "return" in annotations else ""
        return "(" + ", ".join(parts) + ")" + end

    _lazy(module, "inspect-getargspec", {"getargspec": _value(getargspec), "formatargspec": _value(formatargspec)})


def _asyncio_coroutine(module):
    def coroutine(function):
        import functools
        import inspect
        import types
        if inspect.iscoroutinefunction(function):
            return function
        if inspect.isgeneratorfunction(function):
            return types.coroutine(function)

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            result = function(*args, **kwargs)
            if inspect.isgenerator(result) or inspect.isawaitable(result):
                result = yield from result
            return result
        return types.coroutine(wrapper)

    _lazy(module, "asyncio-coroutine", {"coroutine": _value(coroutine)})


def _removed_names(alias, names):
    """A patch for a module whose removed names have a successor."""
    return lambda module: _lazy(module, alias, {
        old: _attribute(*new.rsplit(".", 1)) for old, new in names.items() if not hasattr(module, old)
    })


def _time_clock(module):
    _lazy(module, "time-clock", {"clock": _value(module.perf_counter)})


def _cgi_escape(module):
    def escape(text, quote=None):
        import html
        return html.escape(text, quote=bool(quote))
    _lazy(module, "cgi-escape", {"escape": _value(escape)})


def _platform(module):
    def linux_distribution(*args, **kwargs):
        facts = module.freedesktop_os_release() if hasattr(module, "freedesktop_os_release") else {}
        return facts.get("ID", ""), facts.get("VERSION_ID", ""), facts.get("VERSION_CODENAME", "")
    names = {"linux_distribution": _value(linux_distribution), "dist": _value(linux_distribution)}
    _lazy(module, "platform-dist", names)


def _method(alias, cls, old, function):
    """Gives a method back to a class, whose use is traced."""
    def method(self, *args, **kwargs):
        _trace(alias, "%s.%s" % (cls.__name__, old))
        return function(self, *args, **kwargs)
    if not hasattr(cls, old):
        setattr(cls, old, method)


def _html_unescape(module):
    import html
    _method("html-unescape", module.HTMLParser, "unescape", lambda self, text: html.unescape(text))


def _thread_isalive(module):
    _method("thread-isalive", module.Thread, "isAlive", lambda self: self.is_alive())


def _unittest_asserts(module):
    names = {"assertEquals": "assertEqual", "assertNotEquals": "assertNotEqual", "assert_": "assertTrue",
             "assertAlmostEquals": "assertAlmostEqual", "assertNotAlmostEquals": "assertNotAlmostEqual",
             "assertRegexpMatches": "assertRegex", "assertNotRegexpMatches": "assertNotRegex",
             "assertRaisesRegexp": "assertRaisesRegex", "failUnless": "assertTrue", "failUnlessEqual": "assertEqual",
             "failUnlessRaises": "assertRaises", "failIf": "assertFalse", "failIfEqual": "assertNotEqual"}
    for old, new in names.items():
        _method("unittest-asserts", module.TestCase, old,
                lambda self, *args, _new=new, **kwargs: getattr(self, _new)(*args, **kwargs))


def _unittest_ids(module):
    """Names of tests as Python before 3.11 printed them."""
    def text(self):
        _trace("unittest-ids", "TestCase.__str__")
        cls = type(self)
        return "%s (%s.%s)" % (self._testMethodName, cls.__module__, cls.__qualname__)
    module.TestCase.__str__ = text


def _unittest_docs(module):
    """First lines of docstrings as Python before 3.7 took them: nothing when the text begins on the second line."""
    def description(self):
        _trace("unittest-docs", "TestCase.shortDescription")
        doc = self._testMethodDoc
        return doc.split("\n")[0].strip() or None if doc else None
    module.TestCase.shortDescription = description


def _random_sample(module):
    before = module.Random.sample

    def sample(self, population, k, **kwargs):
        if isinstance(population, (set, frozenset)):
            _trace("random-sample", "Random.sample")
            population = tuple(population)
        return before(self, population, k, **kwargs)
    module.Random.sample = sample
    module.sample = module._inst.sample


def _open_u(module):
    before = module.open

    def patched(file, mode="r", *args, **kwargs):
        if isinstance(mode, str) and "U" in mode:
            _trace("open-u", "open")
            mode = mode.replace("U", "") or "r"
            mode = mode if any(letter in mode for letter in "rwax") else "r" + mode
        return before(file, mode, *args, **kwargs)
    module.open = patched


def _jinja(module):
    names = {"contextfilter": "pass_context", "contextfunction": "pass_context",
             "evalcontextfilter": "pass_eval_context", "evalcontextfunction": "pass_eval_context",
             "environmentfilter": "pass_environment", "environmentfunction": "pass_environment"}
    found = {old: _attribute("jinja2.utils", new) for old, new in names.items()}
    found["Markup"] = _attribute("markupsafe", "Markup")
    found["escape"] = _attribute("markupsafe", "escape")
    found["soft_unicode"] = _attribute("markupsafe", "soft_str")
    _lazy(module, "jinja-aliases", found)


def _numpy(module):
    values = {"bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str,
              "unicode": str, "long": int}
    names = {name: _value(value) for name, value in values.items() if name not in vars(module)}
    successors = {"typeDict": "sctypeDict", "float_": "float64", "complex_": "complex128", "unicode_": "str_",
                  "string_": "bytes_", "Inf": "inf", "Infinity": "inf", "infty": "inf", "NaN": "nan", "PINF": "inf",
                  "asscalar": None, "product": "prod", "cumproduct": "cumprod", "alltrue": "all", "sometrue": "any",
                  "in1d": "isin", "row_stack": "vstack", "trapz": "trapezoid"}
    for old, new in successors.items():
        if old not in vars(module) and new is not None and new in vars(module):
            names[old] = _value(getattr(module, new))
    names["asscalar"] = _value(lambda array: array.item())
    _lazy(module, "numpy-aliases", names)


def _imp():
    """The module imp, over importlib."""
    import importlib.machinery
    import types
    module = types.ModuleType("imp", "What programs use of the module imp.")
    module.PY_SOURCE, module.PY_COMPILED, module.C_EXTENSION, module.PKG_DIRECTORY = 1, 2, 3, 5
    module.C_BUILTIN, module.PY_FROZEN = 6, 7
    module.reload, module.new_module = importlib.reload, types.ModuleType
    module.get_magic = lambda: importlib.util.MAGIC_NUMBER
    module.get_tag = lambda: sys.implementation.cache_tag
    module.cache_from_source, module.source_from_cache = (
        importlib.util.cache_from_source, importlib.util.source_from_cache)
    module.acquire_lock = module.release_lock = lambda: None
    module.lock_held = lambda: False
    module.is_builtin = lambda name: int(name in sys.builtin_module_names)
    module.get_suffixes = lambda: (
        [(end, "rb", 3) for end in importlib.machinery.EXTENSION_SUFFIXES]
        + [(end, "r", 1) for end in importlib.machinery.SOURCE_SUFFIXES]
        + [(end, "rb", 2) for end in importlib.machinery.BYTECODE_SUFFIXES])

    def load_source(name, path, file=None):
        spec = importlib.util.spec_from_file_location(
            name, path, loader=importlib.machinery.SourceFileLoader(name, path))
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        spec.loader.exec_module(loaded)
        return loaded

    def find_module(name, path=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            raise ImportError("No module named %r" % name)
        if spec.submodule_search_locations:
            return None, list(spec.submodule_search_locations)[0], ("", "", 5)
        suffix = os.path.splitext(spec.origin)[1]
        kind = 1 if suffix == ".py" else 3
        return open(spec.origin, "rb" if kind == 3 else "r"), spec.origin, (suffix, "r", kind)

    def load_module(name, file, path, description):
        if description[2] == 5:
            path = os.path.join(path, "__init__.py")
        return load_source(name, path)

    module.load_source, module.find_module, module.load_module = load_source, find_module, load_module
    return module


class _Modules(object):
    """Finds modules that Python no longer has, and patches others right after they are executed."""

    def __init__(self):
        self.patches, self.modules, self.busy = {}, {}, set()

    def find_spec(self, name, path=None, target=None):
        if name in self.modules:
            return importlib.util.spec_from_loader(name, self)
        if name not in self.patches or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy.discard(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        execute = spec.loader.exec_module

        def execute_and_patch(module):
            execute(module)
            for patch in self.patches[name]:
                patch(module)
        try:
            spec.loader.exec_module = execute_and_patch
        except AttributeError:
            return None
        return spec

    def create_module(self, spec):
        alias, make = self.modules[spec.name]
        _trace(alias, spec.name)
        return make()

    def exec_module(self, module):
        pass


_finder = _Modules()

PATCHES = {
    "collections-abc": [("collections", _collections)],
    "inspect-getargspec": [("inspect", _inspect_getargspec)],
    "asyncio-coroutine": [("asyncio", _asyncio_coroutine)],
    "fractions-gcd": [("fractions", _removed_names("fractions-gcd", {"gcd": "math.gcd"}))],
    "base64-strings": [("base64", _removed_names("base64-strings", {
        "encodestring": "base64.encodebytes", "decodestring": "base64.decodebytes"}))],
    "time-clock": [("time", _time_clock)],
    "cgi-escape": [("cgi", _cgi_escape)],
    "platform-dist": [("platform", _platform)],
    "html-unescape": [("html.parser", _html_unescape)],
    "thread-isalive": [("threading", _thread_isalive)],
    "unittest-asserts": [("unittest.case", _unittest_asserts)],
    "unittest-names": [("unittest", _removed_names("unittest-names", {"_TextTestResult": "unittest.TextTestResult"}))],
    "unittest-ids": [("unittest.case", _unittest_ids)],
    "unittest-docs": [("unittest.case", _unittest_docs)],
    "random-sample": [("random", _random_sample)],
    "open-u": [("builtins", _open_u)],
    "os-errno": [("os", lambda module: _lazy(module, "os-errno", {"errno": lambda: __import__("errno")}))],
    "locale-format": [("locale", _removed_names("locale-format", {"format": "locale.format_string"}))],
    "pkgutil-impimporter": [("pkgutil", _removed_names("pkgutil-impimporter", {
        "ImpImporter": "zipimport.zipimporter", "ImpLoader": "zipimport.zipimporter"}))],
    "jinja-aliases": [("jinja2", _jinja), ("jinja2.utils", _jinja), ("jinja2.filters", _jinja)],
    "markupsafe-soft": [("markupsafe", _removed_names("markupsafe-soft", {"soft_unicode": "markupsafe.soft_str"}))],
    "numpy-aliases": [("numpy", _numpy)],
}
MODULES = {"imp": ("imp", _imp)}


def install(names):
    # Loaded first: what it imports itself has to be patched like everything that is there already.
    global importlib
    import importlib.util
    for name in names.split(","):
        for path, patch in PATCHES.get(name, []):
            if path in sys.modules:
                patch(sys.modules[path])
            else:
                _finder.patches.setdefault(path, []).append(patch)
        if name in MODULES and name not in sys.builtin_module_names:
            _finder.modules[name] = MODULES[name]
    if (_finder.patches or _finder.modules) and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
`;
