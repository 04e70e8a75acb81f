/**
 * Reads `[file, source]` pairs as JSON from stdin and writes findings without their advice. It parses sources and never
 * runs them. It needs Python 3.8 or later.
 */
export const pythonProgram = String.raw`
import ast, json, sys, warnings
warnings.simplefilter("ignore")
MODULES = {}
for rule, severity, names in (
    ("start_process", "high", "subprocess pty multiprocessing"),
    ("native_code", "high", "ctypes _ctypes cffi"),
    ("dynamic_code", "high", "code codeop marshal pickle _pickle shelve dill"),
    ("file_access", "medium", "shutil pathlib glob tempfile fileinput mmap sqlite3"),
    ("network_access", "medium", "socket ssl http urllib ftplib smtplib imaplib poplib telnetlib xmlrpc socketserver "
     "asyncore requests httpx aiohttp urllib3 paramiko"),
    ("threads", "low", "threading _thread concurrent"),
    ("module_loading", "medium", "importlib runpy pkgutil zipimport imp"),
    ("environment", "low", "os posix nt pwd"),
):
    for name in names.split():
        MODULES[name] = (rule, severity)
CALLS = {"eval": "dynamic_code", "exec": "dynamic_code", "compile": "dynamic_code", "open": "file_access"}
PROCESS = {"system", "popen", "fork", "forkpty", "kill", "killpg", "startfile"}
DUNDERS = {"__subclasses__", "__globals__", "__builtins__", "__bases__", "__mro__", "__code__", "__closure__",
           "__getattribute__", "__loader__", "__reduce__", "__reduce_ex__"}

def text(node, steps=50):
    if steps < 0: return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str): return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text(node.left, steps - 1), text(node.right, steps - 1)
        return None if left is None or right is None else left + right
    return None

def path(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name): return ""
    return ".".join([node.id] + parts[::-1])

def endless(loop):
    if not (isinstance(loop.test, ast.Constant) and loop.test.value): return False
    waiting = [(each, False) for each in loop.body]
    while waiting:
        node, inner = waiting.pop()
        if isinstance(node, (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)): return False
        if isinstance(node, ast.Break) and not inner: return False
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)): continue
        holds = inner or isinstance(node, (ast.For, ast.While, ast.AsyncFor))
        waiting += [(child, holds) for child in ast.iter_child_nodes(node)]
    return True

def scan(source):
    found = []
    aliases = {}
    def add(node, rule, severity, why):
        if len(found) < 200: found.append([node.lineno, node.col_offset + 1, severity, rule, why])
    def module(node, name):
        rule = MODULES.get(name.split(".")[0])
        if rule: add(node, rule[0], rule[1], "the module " + name + " is imported")
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                aliases[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names: aliases[alias.asname or alias.name] = (node.module or "") + "." + alias.name
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names: module(node, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0: module(node, node.module or "")
        elif isinstance(node, ast.Call):
            name = path(node.func)
            first, _, rest = name.partition(".")
            name = aliases.get(first, first) + ("." + rest if rest else "")
            if name.startswith("builtins."): name = name[9:]
            if name in CALLS:
                rule = CALLS[name]
                severity = "high" if rule == "dynamic_code" else "medium"
                add(node, rule, severity, name + " is called")
            elif name in ("__import__", "importlib.import_module"):
                given = text(node.args[0]) if node.args else None
                if given is None: add(node, "module_loading", "medium", "a module is loaded whose name is computed")
                else: module(node, given)
            elif name.startswith(("os.", "posix.")) and (name.split(".")[-1] in PROCESS or
                    name.split(".")[-1].startswith(("exec", "spawn", "posix_spawn"))):
                add(node, "start_process", "high", name + " starts programs or sends signals")
            elif name in ("getattr", "setattr") and len(node.args) > 1 and text(node.args[1]) in DUNDERS:
                add(node, "prototype_escape", "high", text(node.args[1]) + " reaches the internals of Python")
        elif isinstance(node, ast.Attribute):
            if node.attr in DUNDERS:
                add(node, "prototype_escape", "high", node.attr + " reaches the internals of Python")
            elif path(node) in ("os.environ", "os.environb"): add(node, "environment", "low", "the environment is used")
        elif isinstance(node, ast.While) and endless(node):
            add(node, "endless_loop", "medium", "the loop has no end")
    return found

result = []
for file, source in json.load(sys.stdin):
    try:
        result += [[file] + each for each in scan(source)]
    except SyntaxError as error:
        result.append([file, error.lineno or 1, max(1, error.offset or 1), "high", "syntax_error",
                       "It cannot be parsed, so nothing in it was scanned: " + str(error.msg)])
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        why = str(error)[:200] or type(error).__name__
        result.append([file, 1, 1, "high", "unscannable", "Cannot scan it: " + why])
json.dump(result, sys.stdout)
`;
