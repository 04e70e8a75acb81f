/** Names that newer versions of libraries have removed. */
export const libraries = String.raw`
def _jinja(module):
    names = {"contextfilter": "pass_context", "contextfunction": "pass_context",
             "evalcontextfilter": "pass_eval_context", "evalcontextfunction": "pass_eval_context",
             "environmentfilter": "pass_environment", "environmentfunction": "pass_environment"}
    found = {old: _attribute("jinja2.utils", new) for old, new in names.items()}
    found["Markup"] = _attribute("markupsafe", "Markup")
    found["escape"] = _attribute("markupsafe", "escape")
    found["soft_unicode"] = _attribute("markupsafe", "soft_str")
    _lazy(module, "jinja-aliases", found)


def _werkzeug_test(module):
    opened = module.Client.open

    def open(self, *args, **kwargs):
        if "as_tuple" not in kwargs:
            return opened(self, *args, **kwargs)
        _trace("werkzeug-as-tuple", "Client.open")
        as_tuple = kwargs.pop("as_tuple")
        response = opened(self, *args, **kwargs)
        return (response.request.environ, response) if as_tuple else response
    module.Client.open = open


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
`;
