//! The file tools of an agent in real boxes.

use serde_json::{Value, json};

use crate::agent::tools::{exec, refusal, tool};
use crate::support::daemon::Daemon;

#[track_caller]
fn done(daemon: &Daemon, name: &str, arguments: &Value) -> Value {
    let result = tool(daemon, name, arguments).expect("a result");
    assert_eq!(result["ok"], true, "{name} {arguments}: {result}");
    result
}

#[track_caller]
fn failed(daemon: &Daemon, name: &str, arguments: &Value, expected: &str) {
    let result = tool(daemon, name, arguments).expect("a result");
    assert_eq!(result["ok"], false, "{name} {arguments}: {result}");
    let error = result["error"].as_str().expect("an error");
    assert!(error.contains(expected), "`{error}` lacks `{expected}`");
}

#[test]
fn read_gives_text_lines_names_and_says_what_is_missing() {
    let daemon = Daemon::start();
    exec(
        &daemon,
        "seq 1 10 > lines.txt; mkdir -p d/sub; touch d/b d/a; printf 'a\\000b' > bin; printf '\\377x' > odd",
    );
    let whole = done(&daemon, "read", &json!({"path": "/workspace/lines.txt"}));
    assert_eq!(whole["content"], "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    let part = done(
        &daemon,
        "read",
        &json!({"path": "/workspace/lines.txt", "offset": 3, "limit": 2}),
    );
    assert_eq!(part["content"], "3\n4\n");
    let names = done(&daemon, "read", &json!({"path": "/workspace/d"}));
    assert_eq!(names["is_directory"], true);
    let content = names["content"].as_str().expect("names");
    let content: Vec<&str> = content
        .lines()
        .map(|name| name.trim_end_matches('/'))
        .collect();
    assert_eq!(content, ["a", "b", "sub"]);
    failed(
        &daemon,
        "read",
        &json!({"path": "/workspace/nope.txt"}),
        "File not found: /workspace/nope.txt",
    );
    let binary = tool(&daemon, "read", &json!({"path": "/workspace/bin"})).expect("a result");
    assert!(binary.to_string().contains("binary"), "{binary}");
    let odd = done(&daemon, "read", &json!({"path": "/workspace/odd"}));
    assert_eq!(odd["content"], "\u{fffd}x");
}

#[test]
fn write_makes_files_and_the_directories_above_them() {
    let daemon = Daemon::start();
    let path = "/workspace/a/b/c.txt";
    let made = done(&daemon, "write", &json!({"path": path, "content": "one\n"}));
    assert_eq!(made["path"], path);
    done(
        &daemon,
        "write",
        &json!({"path": path, "content": "字 two"}),
    );
    assert_eq!(exec(&daemon, &format!("cat {path}"))["stdout"], "字 two");
    exec(&daemon, "mkdir dir; echo x > file");
    for in_the_way in ["/workspace/dir", "/workspace/file/below"] {
        let result = tool(
            &daemon,
            "write",
            &json!({"path": in_the_way, "content": ""}),
        );
        assert_eq!(result.expect("a result")["ok"], false);
    }
}

#[test]
fn edit_wants_one_place() {
    let daemon = Daemon::start();
    exec(&daemon, "printf 'one\\ntwo\\ntwo\\nthree\\n' > f");
    let path = "/workspace/f";
    let edited = done(
        &daemon,
        "edit",
        &json!({"path": path, "old_string": "one", "new_string": "ONE"}),
    );
    let diff = edited["diff"].as_str().expect("a diff");
    assert!(diff.contains("-one\n+ONE\n"), "{diff}");
    failed(
        &daemon,
        "edit",
        &json!({"path": path, "old_string": "two", "new_string": "2"}),
        "old_string matches 2 locations; provide a more unique string.",
    );
    failed(
        &daemon,
        "edit",
        &json!({"path": path, "old_string": "four", "new_string": "4"}),
        "old_string not found in file.",
    );
    failed(
        &daemon,
        "edit",
        &json!({"path": "/workspace/none", "old_string": "a", "new_string": "b"}),
        "File not found: /workspace/none",
    );
    assert_eq!(exec(&daemon, "cat f")["stdout"], "ONE\ntwo\ntwo\nthree\n");
}

#[test]
fn glob_and_grep_find_what_is_there() {
    let daemon = Daemon::start();
    exec(
        &daemon,
        "mkdir -p src/deep node_modules; echo 'fn main() {}' > src/main.rs; echo 'let x = 7; // TODO' > src/deep/x.rs; echo TODO > node_modules/y.rs; echo TODO > notes.md",
    );
    let found = done(&daemon, "glob", &json!({"pattern": "*.rs"}));
    let mut matches: Vec<&str> = found["matches"]
        .as_array()
        .expect("matches")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    matches.sort_unstable();
    assert_eq!(
        matches,
        ["/workspace/src/deep/x.rs", "/workspace/src/main.rs"]
    );
    assert_eq!(found["truncated"], false);
    let found = done(
        &daemon,
        "grep",
        &json!({"pattern": "TODO$", "include": "*.rs"}),
    );
    assert_eq!(
        found["matches"],
        json!([{"file": "/workspace/src/deep/x.rs", "line": 1, "content": "let x = 7; // TODO"}])
    );
    failed(&daemon, "grep", &json!({"pattern": "("}), "Invalid regex");
    failed(
        &daemon,
        "grep",
        &json!({"pattern": "x", "path": "/workspace/none"}),
        "Path not found: /workspace/none",
    );
    failed(
        &daemon,
        "glob",
        &json!({"pattern": "*", "path": "/workspace/notes.md"}),
        "Path is not a directory: /workspace/notes.md",
    );
}

#[test]
fn paths_outside_the_workspace_are_refused() {
    let daemon = Daemon::start();
    exec(
        &daemon,
        "ln -s /etc etc; ln -s /etc/passwd passwd; ln -s ../../../etc/hostname up",
    );
    for path in ["/etc/passwd", "/workspacex/a", "etc/passwd"] {
        let result = tool(&daemon, "read", &json!({"path": path}));
        refusal(result, "Path must be under /workspace.");
    }
    for path in ["/workspace/../etc/passwd", "/workspace/a/../../etc"] {
        for (name, more) in [
            ("read", json!({})),
            ("write", json!({"content": "x"})),
            ("edit", json!({"old_string": "a", "new_string": "b"})),
        ] {
            let mut arguments = more;
            arguments["path"] = json!(path);
            let result = tool(&daemon, name, &arguments);
            refusal(result, "Path escapes the workspace boundary.");
        }
    }
    // What a link in the workspace leads to is at most the box's own file, never the host's.
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    for path in [
        "/workspace/passwd",
        "/workspace/etc/passwd",
        "/workspace/up",
    ] {
        match tool(&daemon, "read", &json!({"path": path})) {
            Ok(result) if result["ok"] == true => {
                let inside = exec(&daemon, &format!("cat {path}"));
                assert_eq!(result["content"], inside["stdout"], "{path}");
                assert!(host.trim().is_empty() || result["content"] != host.as_str());
            }
            Ok(_) | Err(_) => {}
        }
    }
}
