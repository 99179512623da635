import hashlib, json, os, shutil, sys

# plan PROJECT ROOT: prints the kind of the project, or "ready", and the path of its environment.
# done PROJECT ROOT: records that the environment is complete, and for which manifests.
# copy PROJECT TARGET: copies the sources.
mode, project, target = sys.argv[1:4]
names = ("requirements.txt", "pyproject.toml", "setup.py", "setup.cfg")
skipped = {".venv", ".git", "__pycache__", "node_modules", ".tox", ".nox", ".uv-cache"}


def leave_out(directory, entries):
    return [entry for entry in entries if entry in skipped or entry.endswith(".egg-info")]


if mode == "copy":
    shutil.copytree(project, target, symlinks=True, ignore=leave_out)
    sys.exit(0)

manifests = hashlib.sha256()
found = []
for name in names:
    path = os.path.join(project, name)
    if not os.path.isfile(path):
        continue
    with open(path, "rb") as file:
        manifests.update(name.encode() + b"\0" + file.read() + b"\0")
    found.append(name)
key = manifests.hexdigest()
meta = {
    "manifest_files": found,
    "manifest_sha256": key,
    "python_executable": sys.executable,
    "python_version": list(sys.version_info[:3]),
}
kind = "plain"
if "requirements.txt" in found:
    kind = "requirements"
elif found:
    # A package is installed itself, not only its dependencies. So its sources are recorded, and no other project uses its environment.
    kind = "package"
    sources = hashlib.sha256()
    for directory, below, files in os.walk(project):
        below[:] = sorted(set(below) - set(leave_out(directory, below)))
        for name in sorted(files):
            path = os.path.join(directory, name)
            about = os.lstat(path)
            about = [os.path.relpath(path, project), about.st_size, about.st_mtime_ns]
            sources.update(json.dumps(about).encode() + b"\0")
    meta["source_sha256"] = sources.hexdigest()
    key = hashlib.sha256(key.encode() + b"\0" + os.fsencode(project)).hexdigest()
environment = os.path.join(target, key)
record = os.path.join(environment, "boxwood-python-env.json")
text = json.dumps(meta, sort_keys=True)
if mode == "done":
    with open(record + ".new", "w") as file:
        file.write(text)
    os.replace(record + ".new", record)
    sys.exit(0)
try:
    with open(record) as file:
        fresh = file.read() == text and os.path.exists(os.path.join(environment, "bin", "python"))
except OSError:
    fresh = False
print("ready" if fresh else kind, environment)
