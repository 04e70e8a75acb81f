/** The beginning of the shim: how names are given back, and how their use is traced. */
export const core = String.raw`
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


def _removed_names(alias, names):
    """A patch for a module whose removed names have a successor."""
    return lambda module: _lazy(module, alias, {
        old: _attribute(*new.rsplit(".", 1)) for old, new in names.items() if not hasattr(module, old)
    })


def _method(alias, cls, old, function):
    """Gives a method back to a class, whose use is traced."""
    def method(self, *args, **kwargs):
        _trace(alias, "%s.%s" % (cls.__name__, old))
        return function(self, *args, **kwargs)
    if not hasattr(cls, old):
        setattr(cls, old, method)
`;
