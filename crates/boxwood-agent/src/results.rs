//! JSON schemas of the tool results.
//!
//! A failed operation returns `{"ok": false, "error": …}`, so only `ok` is required.

use serde_json::{Value, json};

pub(crate) fn exec() -> Value {
    failing(json!({
        "session_id": text("The box in which it ran."),
        "backend": text("What the box is made of."),
        "status": {"type": "string", "description": "completed, timed_out, or failed."},
        "exit_code": {"type": ["integer", "null"], "description": "Null when the command was killed."},
        "stdout": text("Standard output, cut in its middle when it is long."),
        "stderr": text("Standard error, cut in its middle when it is long."),
        "stdout_truncated": flag("Whether standard output was cut."),
        "stderr_truncated": flag("Whether standard error was cut."),
        "duration_ms": count("How long it took."),
        "reason": text("Why it ended, where that needs a word, such as oom or disk_quota."),
        "notices": {"type": "array", "items": {"type": "string"}, "description": "What else there is to know."},
        "stdout_file": text("Where the whole of a cut standard output can be read."),
        "stderr_file": text("Where the whole of a cut standard error can be read."),
    }))
}

pub(crate) fn read() -> Value {
    failing(json!({
        "path": text("The file or the directory."),
        "content": text("The text, or the names in a directory, one a line."),
        "is_directory": flag("Whether it is a directory."),
        "is_binary": flag("Whether it is not text; content is then empty."),
        "first_line": count("The first line in content, counted from 1."),
        "lines": count("How many lines content has."),
        "total_lines": count("How many lines the file has, where that is known."),
        "size": count("The file's size in bytes."),
        "truncated": flag("Whether there is more behind content: read on with offset."),
        "notice": text("What else there is to know, such as where to read on."),
    }))
}

pub(crate) fn write() -> Value {
    failing(json!({
        "path": text("The file."),
        "size": count("Its size in bytes."),
        "created": flag("Whether the file is new."),
    }))
}

pub(crate) fn edit() -> Value {
    failing(json!({
        "path": text("The file."),
        "replaced": count("How many places were changed."),
        "diff": text("What changed, as a unified diff."),
        "size": count("The file's size in bytes."),
    }))
}

pub(crate) fn glob() -> Value {
    failing(json!({
        "matches": {"type": "array", "items": {"type": "string"}, "description": "Absolute paths, those changed last first."},
        "total": count("How many there are."),
        "truncated": flag("Whether there are more than are shown."),
    }))
}

pub(crate) fn grep() -> Value {
    failing(json!({
        "matches": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "file": text("An absolute path."),
                    "line": count("Counted from 1."),
                    "content": text("The line."),
                },
                "required": ["file", "line", "content"],
            },
            "description": "The lines that fit.",
        },
        "total": count("How many there are."),
        "truncated": flag("Whether there are more than are shown."),
        "files_searched": count("In how many files."),
    }))
}

pub(crate) fn activate() -> Value {
    object(json!({
        "activated": flag("Whether the skill can be used now."),
        "skill_name": text("The skill."),
        "mount_path": text("Where its package is in the box."),
        "content": text("Its instructions, and how to use its files."),
        "ok": flag("False when it failed."),
        "error": text("What went wrong."),
    }))
}

pub(crate) fn register_skill() -> Value {
    object(json!({
        "registered": flag("Whether the skill is in the store."),
        "skill_name": text("Its name there."),
        "source_path": text("The directory that it was made of."),
        "skill": {"type": "object", "description": "The skill as the store has it."},
        "ok": flag("False when it failed."),
        "error": text("What went wrong."),
    }))
}

fn failing(mut properties: Value) -> Value {
    properties["ok"] = flag("Whether it succeeded.");
    properties["error"] = text("What went wrong, where ok is false.");
    let mut schema = object(properties);
    schema["required"] = json!(["ok"]);
    schema
}

fn object(properties: Value) -> Value {
    let mut schema = json!({"type": "object"});
    schema["properties"] = properties;
    schema
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": description})
}
