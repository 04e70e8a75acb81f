/** The import hook, the table of patches, and what the `.pth` file calls. */
export const install = String.raw`
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
    "local-httpbin": [("pytest", _local_httpbin)],
    "connect-timeouts": [("socket", _connect_timeouts)],
    "jinja-aliases": [("jinja2", _jinja), ("jinja2.utils", _jinja), ("jinja2.filters", _jinja)],
    "markupsafe-soft": [("markupsafe", _removed_names("markupsafe-soft", {"soft_unicode": "markupsafe.soft_str"}))],
    "werkzeug-as-tuple": [("werkzeug.test", _werkzeug_test)],
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
