/**
 * Makes the project of the work tree importable, as an editable installation does: its source directories on the path,
 * its metadata and its programs beside them, and nothing written into the work tree but a version file that the project
 * ignores in git. Reads setup.cfg and setup.py, without running them, and pyproject.toml as JSON.
 */
export const installScript = String.raw`
import ast, configparser, glob, io, json, os, re, sys

config = json.loads(sys.argv[1])
root, tree, site = config["root"], config["tree"], config["site"]
pyproject = config["pyproject"] or {}
os.chdir(tree)


def read(path):
    try:
        with io.open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (IOError, OSError):
        return ""


def literal(node):
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return None


def setup_keywords():
    """What setup.py passes to setup() as literals, also through variables of the module."""
    try:
        module = ast.parse(read("setup.py"))
    except (SyntaxError, ValueError):
        return {}
    names, found = {}, {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = node.value
    for node in ast.walk(module):
        name = getattr(getattr(node, "func", None), "id", getattr(getattr(node, "func", None), "attr", ""))
        if isinstance(node, ast.Call) and name == "setup":
            for keyword in node.keywords:
                value = keyword.value
                if isinstance(value, ast.Name) and value.id in names:
                    value = names[value.id]
                found[keyword.arg] = literal(value)
    return {key: value for key, value in found.items() if value is not None}


parser = configparser.RawConfigParser(strict=False)
try:
    parser.read_string(read("setup.cfg"))
except configparser.Error:
    pass
cfg = {section: dict(parser.items(section)) for section in parser.sections()}
keywords = setup_keywords()
project = pyproject.get("project", {})
poetry = pyproject.get("tool", {}).get("poetry", {})
flit = pyproject.get("tool", {}).get("flit", {}).get("metadata", {})

name = project.get("name") or cfg.get("metadata", {}).get("name") or keywords.get("name") or poetry.get("name") \
    or flit.get("dist-name") or flit.get("module") or config["name"]


def source_roots():
    package_dir = keywords.get("package_dir") or {}
    value = cfg.get("options", {}).get("package_dir", "")
    for line in value.splitlines():
        key, separator, target = line.partition("=")
        if separator:
            package_dir[key.strip()] = target.strip()
    roots = [path for key, path in sorted(package_dir.items()) if key == ""]
    where = pyproject.get("tool", {}).get("setuptools", {}).get("packages", {})
    if isinstance(where, dict):
        roots += where.get("find", {}).get("where", [])
    where = cfg.get("options.packages.find", {}).get("where", "")
    roots += [where] if where else []
    if not roots:
        has_src = glob.glob("src/*/__init__.py") and not os.path.exists("src/__init__.py")
        roots = ["src", "."] if has_src and not glob.glob("*/__init__.py") else ["src"] if has_src else ["."]
        if glob.glob("lib/*/__init__.py") and not os.path.exists("lib/__init__.py"):
            roots = ["lib"] + roots
    return [os.path.normpath(os.path.join(tree, path)) for path in roots if isinstance(path, str)]


roots = source_roots()
version = project.get("version") or poetry.get("version") or keywords.get("version") \
    or cfg.get("metadata", {}).get("version", "")
if not isinstance(version, str) or not re.match(r"^\d", version):
    version = ""
    own = name.lower().replace("-", "_")
    paths = [path for root_ in roots for pattern in ("/*/__init__.py", "/*/*version*.py", "/*/__about__.py",
             "/*/__pkginfo__.py", "/*.py") for path in sorted(glob.glob(root_ + pattern))]
    # The package of the project's own name comes first.
    for path in sorted(paths, key=lambda path: os.path.basename(os.path.dirname(path)).lower() != own):
        match = re.search(r"^(?:__version__|version|VERSION)\s*=\s*['\"](\d[^'\"]*)['\"]", read(path), re.M)
        if match:
            version = match.group(1)
            break
version = re.sub(r"[^A-Za-z0-9.+!]", ".", version or config["version"])

entries = {}


def add(group, lines):
    if isinstance(lines, dict):
        lines = ["%s = %s" % item for item in sorted(lines.items()) if isinstance(item[1], str)]
    if isinstance(lines, str):
        lines = lines.splitlines()
    entries.setdefault(group, []).extend(line.strip() for line in lines if "=" in line)


add("console_scripts", project.get("scripts", {}))
add("console_scripts", poetry.get("scripts", {}))
for group, lines in project.get("entry-points", {}).items():
    add(group, lines)
for group, lines in poetry.get("plugins", {}).items():
    add(group, lines)
for group, lines in cfg.get("options.entry_points", {}).items():
    add(group, lines)
if isinstance(keywords.get("entry_points"), dict):
    for group, lines in keywords["entry_points"].items():
        add(group, lines)

info = os.path.join(site, "%s-%s.dist-info" % (re.sub(r"[^A-Za-z0-9.]+", "_", name), version))
os.makedirs(info, exist_ok=True)


def write(path, text):
    with io.open(path, "w", encoding="utf-8") as file:
        file.write(text)


requires = project.get("dependencies") or keywords.get("install_requires") or [
    line.strip() for line in cfg.get("options", {}).get("install_requires", "").splitlines()]
requires = [line for line in requires if isinstance(line, str) and line and not line.startswith("#")]
metadata = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
write(os.path.join(info, "METADATA"), metadata + "".join("Requires-Dist: %s\n" % line for line in requires) + "\n")
write(os.path.join(info, "INSTALLER"), "atoll\n")
write(os.path.join(info, "RECORD"), "")
text = "".join("[%s]\n%s\n\n" % (group, "\n".join(lines)) for group, lines in sorted(entries.items()) if lines)
if text:
    write(os.path.join(info, "entry_points.txt"), text)
write(os.path.join(site, "atoll_editable.pth"), "".join(path + "\n" for path in roots))

binaries = os.path.join(root, "bin")
for line in entries.get("console_scripts", []):
    script, _, target = line.partition("=")
    module, _, attribute = re.sub(r"\[.*", "", target).strip().partition(":")
    path = os.path.join(binaries, script.strip())
    if not attribute or os.path.basename(path) != script.strip():
        continue
    write(path, "#!%s\nimport sys\nfrom %s import %s\nif __name__ == '__main__':\n    sys.exit(%s())\n" % (
        os.path.join(binaries, "python"), module, attribute.split(".")[0], attribute))
    os.chmod(path, 0o755)

scm = pyproject.get("tool", {}).get("setuptools_scm", {})
match = re.search(r"write_to['\"]?\s*[:=]\s*['\"]([^'\"]+)", read("setup.py"))
target = scm.get("version_file") or scm.get("write_to") or (match.group(1) if match else "")
version_file = ""
if target and not os.path.isabs(target) and ".." not in target.split("/") and not os.path.lexists(target):
    numbers = [int(part) for part in re.findall(r"\d+", version)[:3]]
    owner = os.stat(tree)
    write(target, "__version__ = version = %r\n__version_tuple__ = version_tuple = %r\n" % (version, tuple(numbers)))
    os.chown(target, owner.st_uid, owner.st_gid)
    version_file = target
print(json.dumps({"name": name, "version": version, "roots": roots, "version_file": version_file}))
`;
