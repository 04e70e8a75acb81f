/** Modules that Python no longer has. */
export const removedModules = String.raw`
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
`;
