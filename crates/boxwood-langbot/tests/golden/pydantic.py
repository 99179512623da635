"""Records the results of LangBot's own pydantic models for a few hundred inputs.

Run it with the Python of an environment that has `langbot-plugin` 0.4.2 or 0.7.18:

    python -P pydantic.py pydantic-v0_4.json [RECORDING.jsonl ...]

Recordings are lines of traffic; their specs become cases as well. Each case is the model's name, the
input, and either the dumped model or the text of the error.
"""

import json
import math
import re
import sys

import pydantic
from langbot_plugin.box import models

try:
    from langbot_plugin.entities.io.context import ActionContext
except ImportError:
    ActionContext = None

IS_V0_7 = ActionContext is not None

# One of every JSON type, and the edges of what is coerced into another.
ANY = [
    None, True, False, 0, 1, -1, 2, 1.0, 0.0, -1.0, 1.5, "", " ", "x", "1", "off", "/x", [], ["a"], {}, {"a": "b"},
]
INTEGERS = [
    31, 32, 33, 999, 10**9, 10**9 + 1, 2**22, 2**22 + 1, 2**26 + 1, 2**30 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**30,
    1e3, 1e15, 1e16, 1e22, 1e300, -1e300, 64.000001, 5e-324,
    "999", " 999 ", "+999", "-999", "0999", "1_000", "1__000", "_100", "100_", "999.0", "999.00", "999.", "999.5",
    ".0", "0x40", "1e3", "９９", "\u00a0999\u3000", "\x1c999", "9" * 40, "9" * 4300, "9" * 4301, "0_999", "0__999",
    "0-999", "+-9", "--9", "-0", "00", "0.0", "99 9", "nan", "inf", "true", "999\n", "999\x00", "'", "it's \"x\"",
]
FLOATS = [
    0.5, 1e-9, 4096, 4096.5, 1e308, -0.5, 1e22, 123456789.125, 2**63, "0.5", " 0.5 ", "1e3", ".5", "5.", "1_0.5",
    "1__0", "_1", "nan", "NaN", "inf", "-inf", "infinity", "1e999", "half", "+1", "-1", "0", "-0.0", "1,5", "0x1",
]
BOOLEANS = [
    "yes", "no", "on", "t", "f", "y", "n", "true", "false", "TRUE", "False", "0", "oui", " true", 2.0, 0.5, 2**63, -0.0,
    1e300,
]
TEXTS = [
    "  padded\t", "\x1c\x1dx\x1f", "\u00a0x\u3000", "a\x00b", "line\nbreak", "tab\t\\", "quote'", 'both\'"', '"', "é" * 30,
    "\u200b\u00ad", "\U0001f600" * 20, "x" * 48, "x" * 49, "x" * 300, "a\u0301", "\u0301", "\u2028", "\ue000", "\x7f",
]
PATHS = [
    "/", "//", "/workspace", " /workspace ", "/workspace/", "/workspace/sub", "/workspaces", "relative", "./x", "~",
    "C:\\x", "C:/x", "C:x", "\\\\host\\share", "\\x", "é:/x", "/a//b", "/a/../b", "/a/.", "///a", "/\x00", "/" + "x" * 60,
]
ENUMS = ["on", "ON", "none", "ro", "rw", " off", "off ", "Off"]
DICTS = [
    {"A": 1}, {"A": None, "B": "x", "C": [1, 2]}, {"a.b": 2}, {"": 3}, {"A": "x", "a b": True}, {"A": {"deep": ["er"]}},
    {"A": "\x00"}, {"A=B": "x"}, {"": "x"}, [["a", "b"]], {"Ω": 1.0}, {"Z": "1", "A": "2"},
]
LISTS = [["a", 1], [None, "x", {}], [["a"]], {"0": "a"}, "ab", [""], ["a\x00"], [1.5, True]]
DIGEST = "0123456789abcdef" * 4
MOUNT = {"host_path": "/h", "mount_path": "/m"}
ARTIFACT = {
    "host_path": "/h", "mount_path": f"/opt/langbot-artifacts/{DIGEST}", "mode": "ro",
    "content_digest": f"sha256:{DIGEST}", "manifest_path": "/h/manifest.json",
}
TIMES = [
    "2026-06-09T11:30:17Z", "2026-06-09T11:30:17.123456Z", "2026-06-09T11:30:17.1234567+02:00",
    "2026-06-09 11:30:17+00:00", "2026-06-09t11:30z", "2026-06-09T11:30:17", "2026-06-09", "2026-6-9", "2026-13-01",
    "2026-02-30T00:00Z", "2026-06-09T25:00Z", "2026-06-09T11:60Z", "2026-06-09T11:30:17+24:00", "2026-06-09T11:30:17+0200",
    "2026-06-09T11:30:17 Z", "2026-06-09T11:30:17Zx", "0000-01-01T00:00Z", "0001-01-01T00:00Z", "0001-01-01T00:00+01:00", "9999-12-31T23:59:59Z",
    "1781004617", "1781004617.5", "1781004617000", "-1", 1781004617, 1781004617.25, 1781004617000, -1, -1.5, 10**11,
    10**17, 2**63, 1e300, "soon", "2026-06-09T11:30:17-23:59", "20260609T113017Z", "2026-06-09_11:30Z", " 2026-06-09T11:30Z",
]


def with_each(base, field, values):
    for value in values:
        yield {**base, field: value}


def without_each(base):
    for name in base:
        yield {key: value for key, value in base.items() if key != name}


def box_specs():
    base = {"session_id": "s"}
    yield {}
    yield base
    yield from with_each({}, "session_id", ANY + TEXTS)
    yield from with_each(base, "cmd", ANY + TEXTS)
    yield from with_each(base, "workdir", ANY + PATHS)
    for field in ("timeout_sec", "memory_mb", "pids_limit", "workspace_quota_mb"):
        yield from with_each(base, field, ANY + INTEGERS)
    for field in ("network", "host_path_mode"):
        yield from with_each(base, field, ANY + ENUMS)
    yield from with_each(base, "env", ANY + DICTS)
    yield from with_each(base, "image", ANY + TEXTS[:6])
    yield from with_each(base, "host_path", ANY + PATHS)
    yield from with_each(base, "mount_path", ANY + PATHS)
    yield from with_each({"workdir": None, **base}, "mount_path", ANY + PATHS[:8])
    yield from with_each({"workdir": "", **base}, "mount_path", ANY + PATHS[:8])
    yield from with_each({"workdir": 0, **base}, "mount_path", PATHS[:8])
    for field in ("persistent", "read_only_rootfs"):
        yield from with_each(base, field, ANY + BOOLEANS)
    yield from with_each(base, "cpus", ANY + FLOATS)
    yield from with_each(base, "extra_mounts", ANY + LISTS)
    for mount in mounts():
        yield {**base, "extra_mounts": [mount]}
    yield {**base, "extra_mounts": [MOUNT, {}, 5, {**MOUNT, "mode": "x"}, MOUNT]}
    yield {**base, "extra_mounts": [MOUNT] * 64}
    yield {**base, "extra_mounts": [MOUNT] * 65}
    yield from combinations(base)


def mounts():
    for field in ("host_path", "mount_path"):
        yield from with_each(MOUNT, field, ANY + PATHS)
    yield from with_each(MOUNT, "mode", ANY + ENUMS)
    yield from without_each(MOUNT)
    yield {**MOUNT, "unknown": 1}
    yield ARTIFACT
    yield from without_each(ARTIFACT)
    yield {**ARTIFACT, "mode": "rw"}
    yield {**MOUNT, "mount_path": "/opt/langbot-artifacts"}
    yield {**MOUNT, "mount_path": "/opt/langbot-artifacts/x", "mode": 5}
    yield {**MOUNT, "mount_path": "/opt/langbot-artifactsx"}
    digests = ["sha256:" + DIGEST, " sha256:" + DIGEST + " ", "sha256:" + "F" * 64, "sha256:", "md5:x", "sha256:é" + "0" * 62]
    yield from with_each(MOUNT, "content_digest", ANY + digests)
    yield from with_each(MOUNT, "manifest_path", ANY + PATHS)


def combinations(base):
    for workdir in (None, "/workspace", "/workspace/a", "/workspacea", "/elsewhere", "/m", "/m/", "/"):
        for mount_path in (None, "/m", "/", "/m/", "/workspace"):
            for mode in (None, "none", "ro"):
                spec = {**base, "host_path": "/h", "workdir": workdir, "mount_path": mount_path, "host_path_mode": mode}
                yield {key: value for key, value in spec.items() if value is not None}
    yield {"workdir": "/elsewhere", "session_id": "s", "host_path": "/a/rather/long/path/on/the/host", "cmd": "true"}
    yield {"": 1, **base}
    yield {"unknown": 1, **base, "other": {"a": [None]}}
    yield {"unknown": 1, "timeout_sec": 0, "cpus": -1, "memory_mb": "x", "another.one": 2}
    yield {"cmd": 1, "workdir": 2, "timeout_sec": None, "network": 3, "session_id": 4, "env": 5, "image": 6, "host_path": 7,
           "host_path_mode": 8, "mount_path": 9, "extra_mounts": 10, "persistent": 11, "cpus": "x", "memory_mb": [],
           "pids_limit": {}, "read_only_rootfs": 12, "workspace_quota_mb": "y"}
    yield {"mount_path": "/m", "cmd": "true"}
    yield {"workdir": None, "mount_path": "rel", "cmd": "true"}
    yield {"host_path": "/h", "mount_path": "/m", "workdir": "", **base}
    yield {"host_path": "/h", "mount_path": " /m ", **base}


def process_specs():
    base = {"command": "cat"}
    yield {}
    yield base
    yield from ANY[:19]
    yield {"memory_mb": 64, **base, "unknown": 1}
    yield from with_each({}, "command", ANY + TEXTS)
    yield from with_each(base, "process_id", ANY + TEXTS)
    yield from with_each(base, "args", ANY + LISTS)
    yield from with_each(base, "env", ANY + DICTS)
    yield from with_each(base, "cwd", ANY + PATHS)
    yield from with_each(base, "memory_mb", ANY + INTEGERS)
    yield {"process_id": 1, "command": " ", "args": [1, "x", 2], "env": {"A": 1, "B": 2}, "cwd": "rel", "memory_mb": "x"}


def contexts():
    base = {"instance_uuid": "i", "workspace_uuid": "w"}
    yield {}
    yield base
    yield from ANY
    yield from with_each({**base, "placement_generation": 3, "installation_uuid": "p"}, "unknown", [1])
    for field in base:
        yield from with_each(base, field, ANY + TEXTS)
    yield from with_each(base, "placement_generation", ANY + INTEGERS)
    yield from with_each(base, "installation_uuid", ANY + TEXTS)


def grants():
    base = {
        "instance_uuid": "i", "workspace_uuid": "w", "execution_generation": 1, "entitlement_revision": 2,
        "expires_at": "2026-06-09T11:30:17Z", "max_sessions": 1, "max_managed_processes": 0,
    }
    yield {}
    yield base
    yield from without_each(base)
    yield {**base, "unknown": 1}
    for field in ("instance_uuid", "execution_generation", "max_sessions"):
        yield from with_each(base, field, ANY + [2**63, "7"])
    yield from with_each(base, "expires_at", ANY + TIMES)


def revocations():
    base = {"instance_uuid": "i", "workspace_uuid": "w", "entitlement_revision": 2}
    yield {}
    yield base
    yield from without_each(base)
    yield {**base, "unknown": 1}
    yield from with_each(base, "workspace_uuid", ANY)
    yield from with_each(base, "entitlement_revision", ANY + [2**63, "7"])


def recorded(paths):
    for path in paths:
        for line in open(path, encoding="utf-8"):
            frame = json.loads(line).get("frame")
            if not isinstance(frame, dict) or not isinstance(frame.get("data"), dict):
                continue
            data = frame["data"]
            match frame.get("action"):
                case "box_exec" | "box_create_session":
                    yield models.BoxSpec, data
                case "box_start_managed_process" if "spec" in data:
                    yield models.BoxManagedProcessSpec, data["spec"]
                case "box_upsert_sandbox_admission_grant":
                    yield models.SandboxAdmissionGrant, data
                case "box_revoke_sandbox_admission_grant":
                    yield models.SandboxAdmissionRevocation, data
            if IS_V0_7 and frame.get("context") is not None:
                yield ActionContext, frame["context"]


def inputs(recordings):
    yield from ((models.BoxSpec, spec) for spec in box_specs())
    yield from ((models.BoxManagedProcessSpec, spec) for spec in process_specs())
    if IS_V0_7:
        yield from ((ActionContext, context) for context in contexts())
        yield from ((models.SandboxAdmissionGrant, grant) for grant in grants())
        yield from ((models.SandboxAdmissionRevocation, revocation) for revocation in revocations())
    yield from recorded(recordings)


def printable(value):
    """Numbers that not every JSON reader takes become text; we refuse them all."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return "an integer of many digits"
    return value


def without_inputs(text):
    """Cuts each error after its type: Boxwood shows neither the input nor a link."""
    lines = (line for line in text.split("\n") if not line.startswith("    For further information visit "))
    return "\n".join(re.sub(r"^(  .* \[type=\w+), input_value=.*, input_type=\w+\]$", r"\1]", line) for line in lines)


def outcome(model, data):
    try:
        dumped = model.model_validate(data).model_dump(mode="json")
        return {"dumped": {name: printable(value) for name, value in dumped.items()}}
    except pydantic.ValidationError as error:
        return {"error": without_inputs(str(error))}
    except OverflowError as error:
        # Raised by the model's own code and not caught by it: the clients see another class.
        return {"error": f"OverflowError: {error}"}


def main(target, *recordings):
    lines = {}
    for model, data in inputs(recordings):
        text = json.dumps(data, ensure_ascii=False)
        # What is read must be what a peer would read from the wire.
        lines[model.__name__, text] = {"model": model.__name__, "input": data, **outcome(model, json.loads(text))}
    with open(target, "w", encoding="utf-8") as out:
        body = ",\n".join(json.dumps(case, ensure_ascii=True) for case in lines.values())
        out.write(f"[\n{body}\n]\n")


main(*sys.argv[1:])
