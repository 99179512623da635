"""Writes front_matter.json and operations.json: what langbot-plugin 0.4.2 answers.

Run with a Python that has langbot-plugin==0.4.2 installed:  python make.py
Each case is replayed by the tests of this crate; `differs` marks an answer we mean to give
differently, with the reason.
"""

import base64
import io
import json
import os
import re
import shutil
import tempfile
import zipfile

from langbot_plugin.box import skill_store

FRONT_MATTER = [
    "", "plain text\n", "---\n", "---\nname: a\n", "---\nname: a\n---\n", "---\nname: a\n---\nbody",
    "---\nname: a\n---\n\n\n  body\n", "---   \nname: a\n ---  \nbody\n", "----\nname: a\n---\n",
    "--- x\nname: a\n---\n", " ---\nname: a\n---\n", "\ufeff---\nname: a\n---\n",
    "---\r\nname: a\r\ndescription: b\r\n---\r\nline\r\nline\r\n", "---\rname: a\r---\rx\r",
    "---\n---\nbody\n", "---\n# only a comment\n---\nbody\n", "---\n- a\n- b\n---\nbody\n", "---\nword\n---\nbody\n",
    "---\nname: a\n...\n---\nbody\n",
    "---\nname: 123\n---\n", "---\nname: 0\n---\n", "---\nname: true\n---\n", "---\nname: no\n---\n",
    "---\nname: On\n---\n", "---\nname: y\n---\n", "---\nname: null\n---\n", "---\nname: ~\n---\n", "---\nname:\n---\n",
    "---\nname: ''\n---\n", "---\nname: '  a  '\n---\n", "---\nname: 1.0\n---\n", "---\nname: 1e3\n---\n",
    "---\nname: 1.5e+20\n---\n", "---\nname: .5\n---\n", "---\nname: -.5\n---\n", "---\nname: .inf\n---\n",
    "---\nname: -.INF\n---\n", "---\nname: .nan\n---\n", "---\nname: 0x1F\n---\n", "---\nname: 0o17\n---\n",
    "---\nname: 017\n---\n", "---\nname: 089\n---\n", "---\nname: 0b101\n---\n", "---\nname: 1_000\n---\n",
    "---\nname: 1:30\n---\n", "---\nname: 1:30.5\n---\n", "---\nname: +5\n---\n", "---\nname: -7\n---\n",
    "---\nname: 99999999999999999999999\n---\n", "---\nname: 2026-11-16\n---\n", "---\nname: 2026-1-6\n---\n",
    "---\nname: 2026-11-16 10:11:12\n---\n", "---\nname: 2026-11-16T10:11:12.5Z\n---\n",
    "---\nname: 2026-11-16 1:11:12 +02:00\n---\n", "---\nname: 2026-13-45\n---\n", "---\nname: '2026-11-16'\n---\n",
    "---\nname: !!str 5\n---\n", "---\nname: ! 5\n---\n", "---\nname: !foo bar\n---\n", "---\nname: !!python/object:os.x {}\n---\n",
    "---\nname: [a, b]\n---\n", "---\nname: {a: 1, b: [x, 'it''s', \"q\\\"'\"]}\n---\n", "---\nname: []\n---\n",
    "---\nname: a\ndescription: [1, 2.5, null, true]\n---\n", "---\nname: a: b\n---\n", "---\nname: 'a\n---\n",
    "---\nname: a\nname: b\n---\n", "---\nbase: &b {name: merged, description: d}\n<<: *b\n---\n",
    "---\nbase: &b {name: merged}\nname: own\n<<: *b\n---\n", "---\nx: &x hello\nname: *x\n---\n", "---\nname: *nope\n---\n",
    "---\nname: a\ndescription: >\n  folded\n  text\n\n  more\n---\n", "---\nname: a\ndescription: |-\n  kept\n    lines\n---\n",
    "---\nname: a\ndescription: >-\n  one\n  two\n\n\n# comment\nlicense: MIT\n---\nbody\n",
    "---\nname: a # comment\ndescription: 'b' # other\n---\n", "---\n{name: flow, description: d}\n---\n",
    "---\n? name\n: explicit\n---\n", "---\nname: \"tab\\tnew\\nline \\u00e9\"\n---\n", "---\nname: 技能\ndisplay_name: 技能 🎉\n---\n正文\n",
    "---\ndisplay_name: D\n---\n", "---\nname: n\ndisplay_name: '  '\n---\n", "---\nname: n\ndisplay_name: 5\n---\n",
    "---\nname: a\n%YAML 1.1\n---\n", "---\n\tname: a\n---\n", "---\nname: a\n  bad: indent\n---\n", "---\nname: @at\n---\n",
    "---\nname: `tick\n---\n", "---\n[a]: b\n---\n", "---\nname: a\x07\n---\n", "---\nname: a\x0b---\nbody\n",
    "---\nname: a\u2028---\u2028body\n", "---\nname: a\x85b\n---\n", "---\nname: x\n---\n---\nname: y\n---\n",
    "---\nname: a\nmetadata:\n  k: v\n  n: 1\nallowed-tools: Bash Read\n---\n", "---\nname: a\ntags: [x, y\n---\n",
    "---\nname: a\n\n\ndescription: b\n\n---\n\n\nx", "---\nname: - a\n---\n", "---\nname: a\ndescription: b #c\n---\n",
    "---\nname: a\ndescription: b#c\n---\n", "---\nname: !!int '5'\n---\n", "---\nname: !!null 'null'\n---\n",
    "---\nname: !!int five\n---\n", "---\nname: !!bool 'yes'\ndescription: !!str yes\n---\n", "---\nname: http://x/y\n---\n", "---\nname: a b  c\n---\n",
]

# What we read differently, and why.
DIFFERS = {
    "---\nname: n\ndisplay_name: '  '\n---\n": "a blank display name counts as none",
}


def front_matter():
    cases = []
    for content in FRONT_MATTER:
        root = tempfile.mkdtemp()
        package = os.path.join(root, "the-dir")
        os.mkdir(package)
        with open(os.path.join(package, "SKILL.md"), "w", encoding="utf-8", newline="") as f:
            f.write(content)
        store = skill_store.BoxSkillStore({"local": {"host_root": root, "skills_root": root}})
        listed = store.list_skills()
        case = {"content": content, "skill": None}
        if listed:
            case["skill"] = {key: listed[0][key] for key in ("name", "display_name", "description", "instructions")}
        if content in DIFFERS:
            case["differs"] = DIFFERS[content]
        cases.append(case)
        shutil.rmtree(root)
    return cases


def archive(members, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in members:
            z.writestr(name, text)
    return base64.b64encode(buffer.getvalue()).decode()


def skill(name, description="", body=""):
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}"


ALPHA = {"alpha/SKILL.md": skill("alpha", "the first", "do it\n"), "alpha/a.txt": "hello\n",
         "alpha/sub/b.txt": "deep", "alpha/.hidden": "h", "alpha/bin.dat": "\udcff\udcfe"}
ONE = archive([("SKILL.md", skill("one", "d", "b\n")), ("scripts/run.sh", "echo\n")])
WRAPPED = archive([("pack/SKILL.md", skill("one")), ("pack/x.txt", "x")])
SEVERAL = archive([("pack/b/SKILL.md", skill("bee")), ("pack/a/SKILL.md", skill("ay")), ("pack/README", "r")])
TWO_TOPS = archive([("a/SKILL.md", skill("ay")), ("b/skill.md", skill("bee"))])
DEEP = archive([("p/1/2/SKILL.md", skill("deep"))])
TOO_DEEP = archive([("p/1/2/3/SKILL.md", skill("deep"))])
SUBDIR = archive([("p/x/y/SKILL.md", skill("sub")), ("p/z.txt", "z")])

# (setup files, operation, arguments[, reason for a difference])
OPERATIONS = [
    ({}, "list", {}),
    (ALPHA, "list", {}),
    ({"a/b/c/d/e/f/SKILL.md": skill("six")}, "list", {}),
    ({"a/b/c/d/e/f/g/SKILL.md": skill("seven")}, "list", {}),
    ({"x/SKILL.md": skill("outer"), "x/y/SKILL.md": skill("inner")}, "list", {}),
    ({"x/skill.md": skill("lower")}, "list", {}),
    ({"x/SKILL.md": skill("upper"), "x/skill.md": skill("lower")}, "list", {}),
    ({"SKILL.md": skill("root"), "x/SKILL.md": skill("below")}, "list", {}),
    ({"bad/SKILL.md": "---\nname: [\n---\n", "good/SKILL.md": skill("good")}, "list", {}),
    ({"bad/SKILL.md": "\udcff", "good/SKILL.md": skill("good")}, "list", {}),
    (ALPHA, "get", {"name": "alpha"}),
    (ALPHA, "get", {"name": "beta"}),
    ({}, "create", {"name": "new"}),
    ({}, "create", {"name": "  new  ", "description": "d: with colon", "display_name": "New One", "instructions": "go\n"}),
    ({}, "create", {"name": ""}),
    ({}, "create", {"name": "   "}),
    ({}, "create", {"name": "a b"}),
    ({}, "create", {"name": "../x"}),
    ({}, "create", {"name": "---"}),
    ({}, "create", {"name": "a" * 64}),
    ({}, "create", {"name": "a" * 65}),
    ({}, "create", {"name": "技能"}),
    ({}, "create", {"name": "x_y-2"}),
    (ALPHA, "create", {"name": "alpha"}),
    ({}, "create", {"name": "yes", "description": "on"}),
    ({}, "create", {"name": "multi", "description": "two\nlines: 'x'"}),
    ({"stuff/file": "x"}, "create", {"name": "stuff"}),
    ({"@src/SKILL.md": skill("old", "desc", "body\n"), "@src/f.txt": "f"}, "create", {"name": "fresh", "package_root": "{outside}/src"}),
    ({"@src/SKILL.md": skill("old", "desc", "body\n")}, "create",
     {"name": "fresh", "package_root": "{outside}/src", "display_name": "Shown", "description": " ", "instructions": "mine"}),
    ({"@src/SKILL.md": "no front matter\n"}, "create", {"name": "fresh", "package_root": "{outside}/src"}),
    ({}, "create", {"name": "fresh", "package_root": "{outside}/missing"}),
    ({"@src/SKILL.md": skill("old"), "fresh/x": "x"}, "create", {"name": "fresh", "package_root": "{outside}/src"}),
    ({"@src/x.txt": "x"}, "create", {"name": "fresh", "package_root": "{outside}/src"},
     "LangBot Box names the copy it has left behind; we name the source and leave nothing"),
    ({"there/SKILL.md": "just text\n"}, "create", {"name": "named", "package_root": "{root}/there", "description": "d"}),
    ({"there/x": "x"}, "create", {"name": "named", "package_root": "{root}/there"}),
    ({}, "create", {"name": "named", "package_root": "{root}/nowhere"}),
    (ALPHA, "update", {"name": "alpha", "skill": {"description": "changed"}}),
    (ALPHA, "update", {"name": "alpha", "skill": {"display_name": "A!", "instructions": "new\n"}}),
    (ALPHA, "update", {"name": "alpha", "skill": {"description": ""}}),
    (ALPHA, "update", {"name": "alpha", "skill": {"name": "alpha"}}),
    (ALPHA, "update", {"name": "alpha", "skill": {"name": "beta"}}),
    (ALPHA, "update", {"name": "alpha", "skill": {"package_root": "{root}/alpha"}}),
    (ALPHA, "update", {"name": "alpha", "skill": {"package_root": "{outside}"}}),
    (ALPHA, "update", {"name": "beta", "skill": {}}),
    ({"x/skill.md": skill("lower")}, "update", {"name": "lower", "skill": {"description": "d"}}),
    (ALPHA, "delete", {"name": "alpha"}),
    (ALPHA, "delete", {"name": "beta"}),
    ({"SKILL.md": skill("root")}, "delete", {"name": "root"}),
    ({"top/mid/SKILL.md": skill("nested")}, "delete", {"name": "nested"}),
    ({"@s/SKILL.md": skill("scanned", "d", "b")}, "scan", {"path": "{outside}/s"}),
    ({"@s/a/b/SKILL.md": skill("scanned")}, "scan", {"path": "{outside}/s"}),
    ({"@s/a/b/c/SKILL.md": skill("scanned")}, "scan", {"path": "{outside}/s"}),
    ({"@s/a/SKILL.md": skill("one"), "@s/b/SKILL.md": skill("two")}, "scan", {"path": "{outside}/s"}),
    ({}, "scan", {"path": "{outside}/none"}),
    (ALPHA, "list_files", {"name": "alpha"}),
    (ALPHA, "list_files", {"name": "alpha", "include_hidden": True}),
    (ALPHA, "list_files", {"name": "alpha", "path": "sub"}),
    (ALPHA, "list_files", {"name": "alpha", "path": "./sub/../sub/"}),
    (ALPHA, "list_files", {"name": "alpha", "max_entries": 2}),
    (ALPHA, "list_files", {"name": "alpha", "max_entries": 4}),
    (ALPHA, "list_files", {"name": "alpha", "max_entries": 0}),
    (ALPHA, "list_files", {"name": "alpha", "path": "./nope/"}),
    (ALPHA, "list_files", {"name": "alpha", "path": "a.txt"}),
    (ALPHA, "list_files", {"name": "alpha", "path": ".."}),
    (ALPHA, "list_files", {"name": "alpha", "path": "/etc"}),
    (ALPHA, "list_files", {"name": "alpha", "path": "  "}),
    (ALPHA, "list_files", {"name": "beta", "path": ".."}),
    (ALPHA, "read", {"name": "alpha", "path": "a.txt"}),
    (ALPHA, "read", {"name": "alpha", "path": "sub//b.txt"}),
    (ALPHA, "read", {"name": "alpha", "path": "sub/../../alpha/a.txt"}),
    (ALPHA, "read", {"name": "alpha", "path": "bin.dat"}),
    (ALPHA, "read", {"name": "alpha", "path": "sub"}),
    (ALPHA, "read", {"name": "alpha", "path": "./none"}),
    (ALPHA, "read", {"name": "alpha", "path": "/etc/passwd"}),
    (ALPHA, "read", {"name": "alpha", "path": "../alpha/a.txt"}),
    (ALPHA, "read", {"name": "alpha", "path": ""}),
    ({**ALPHA, "alpha/crlf": "a\r\nb\rc\n"}, "read", {"name": "alpha", "path": "crlf"}),
    (ALPHA, "write", {"name": "alpha", "path": "new/dir/f.txt", "content": "héllo"}),
    (ALPHA, "write", {"name": "alpha", "path": "a.txt", "content": ""}),
    (ALPHA, "write", {"name": "alpha", "path": "../x", "content": "x"}),
    (ALPHA, "write", {"name": "alpha", "path": "/x", "content": "x"}),
    (ALPHA, "write", {"name": "beta", "path": "x", "content": "x"}),
    ({}, "preview", {"zip": ""}),
    ({}, "preview", {"zip": base64.b64encode(b"not a zip").decode()}),
    ({}, "preview", {"zip": ONE, "filename": "My Skill (2).zip"}),
    ({}, "preview", {"zip": WRAPPED}),
    ({}, "preview", {"zip": SEVERAL, "filename": "pack.zip"}),
    ({}, "preview", {"zip": TWO_TOPS, "filename": "a.zip", "target_suffix": ""}),
    ({}, "preview", {"zip": DEEP}),
    ({}, "preview", {"zip": TOO_DEEP}, "LangBot Box names a temporary directory of its own"),
    ({}, "preview", {"zip": SUBDIR, "source_subdir": "x"}),
    ({}, "preview", {"zip": SUBDIR, "source_subdir": "/x/y/"}),
    ({}, "preview", {"zip": SUBDIR, "source_subdir": "nope"}),
    ({}, "preview", {"zip": SUBDIR, "source_subdir": "../x"}),
    ({}, "preview", {"zip": SUBDIR, "source_subdir": "z.txt"}),
    ({}, "preview", {"zip": archive([("../evil", "x"), ("SKILL.md", skill("one"))])}),
    ({}, "preview", {"zip": archive([("/abs", "x"), ("SKILL.md", skill("one"))])}),
    ({}, "preview", {"zip": archive([("a/../../evil", "x"), ("SKILL.md", skill("one"))])}),
    ({}, "preview", {"zip": archive([("README.md", "x")])}, "LangBot Box names a temporary directory of its own"),
    ({}, "install", {"zip": ONE, "filename": "one.zip"}),
    ({}, "install", {"zip": ONE, "filename": "one.zip", "target_suffix": ""}),
    ({}, "install", {"zip": SEVERAL, "filename": "pack.zip"}),
    ({}, "install", {"zip": SEVERAL, "filename": "pack.zip", "source_paths": ["b", "a/", "b"]}),
    ({}, "install", {"zip": SEVERAL, "filename": "pack.zip", "source_path": "/a"}),
    ({}, "install", {"zip": SEVERAL, "filename": "pack.zip", "source_paths": ["c"]}),
    ({}, "install", {"zip": WRAPPED, "source_paths": ["x"]}),
    ({}, "install", {"zip": WRAPPED, "source_paths": [""]}),
    ({"one-upload/x": "x"}, "install", {"zip": ONE, "filename": "one.zip"}),
    ({}, "install", {"zip": archive([("p/x/a/SKILL.md", skill("a1")), ("p/y/a/SKILL.md", skill("a2"))]), "source_paths": ["x/a", "y/a"]}),
    ({"one/SKILL.md": skill("one")}, "install", {"zip": ONE, "filename": "again.zip"}),
]


def call(store, op, args):
    if op == "list":
        return {"skills": sorted(store.list_skills(), key=lambda s: s["name"])}
    if op == "get":
        return {"skill": store.get_skill(args["name"])}
    if op == "create":
        return {"skill": store.create_skill(args)}
    if op == "update":
        return {"skill": store.update_skill(args["name"], args["skill"])}
    if op == "delete":
        return store.delete_skill(args["name"])
    if op == "scan":
        return {"skill": store.scan_directory(args["path"])}
    if op == "list_files":
        rest = {key: value for key, value in args.items() if key != "name"}
        return store.list_skill_files(args["name"], **rest)
    if op == "read":
        return store.read_skill_file(args["name"], args["path"])
    if op == "write":
        return store.write_skill_file(args["name"], args["path"], args["content"])
    rest = {key: value for key, value in args.items() if key != "zip"}
    rest.setdefault("filename", "skill.zip")
    data = base64.b64decode(args["zip"])
    if op == "preview":
        return {"skills": store.preview_zip_upload(file_bytes=data, **rest)}
    return {"skills": store.install_zip_upload(file_bytes=data, **rest)}


def replaced(value, old, new):
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [replaced(item, old, new) for item in value]
    if isinstance(value, dict):
        return {key: replaced(item, old, new) for key, item in value.items() if key not in ("created_at", "updated_at")}
    return value


def tree(root):
    found = []
    for directory, _dirs, files in os.walk(root):
        found += [os.path.relpath(os.path.join(directory, name), root) for name in files]
    return sorted(found)


def operations():
    cases = []
    for setup, op, args, *reason in OPERATIONS:
        top = os.path.realpath(tempfile.mkdtemp())
        root, outside = os.path.join(top, "root"), os.path.join(top, "outside")
        os.mkdir(root)
        os.mkdir(outside)
        for path, content in setup.items():
            path = os.path.join(outside, path[1:]) if path.startswith("@") else os.path.join(root, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(content.encode("utf-8", "surrogateescape"))
        store = skill_store.BoxSkillStore({"local": {"host_root": root, "skills_root": root}})
        actual = replaced(replaced(args, "{root}", root), "{outside}", outside)
        try:
            answer = {"ok": call(store, op, actual)}
        except Exception as error:
            answer = {"error": str(error)}
        answer = replaced(replaced(answer, root, "{root}"), outside, "{outside}")
        if "error" in answer:
            answer["error"] = re.sub(r"/\S*/langbot_box_skill_\S*", "{temporary}", answer["error"])
        setup = {path: base64.b64encode(content.encode("utf-8", "surrogateescape")).decode() for path, content in setup.items()}
        case = {"setup": setup, "op": op, "args": args, "answer": answer, "tree": tree(root)}
        if reason:
            case["differs"] = reason[0]
        cases.append(case)
        shutil.rmtree(top)
    return cases


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    for name, cases in (("front_matter", front_matter()), ("operations", operations())):
        with open(os.path.join(here, f"{name}.json"), "w", encoding="utf-8") as f:
            json.dump(cases, f, indent=1, ensure_ascii=True)
            f.write("\n")
        print(name, len(cases))
