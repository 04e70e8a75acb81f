/** Names that newer versions of the standard library have removed. */
export const standardLibrary = String.raw`
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


def _html_unescape(module):
    import html
    _method("html-unescape", module.HTMLParser, "unescape", lambda self, text: html.unescape(text))


def _thread_isalive(module):
    _method("thread-isalive", module.Thread, "isAlive", lambda self: self.is_alive())


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
`;
