//! What the file tools ask of the box, and what they make of its answers.

use boxwood_api::{EditTextRequest, ErrorCode, GlobRequest, GrepRequest, WriteTextRequest};
use serde_json::{Value, json};

use crate::double::{BoxRequest, Double, call, failure};

async fn result(boxes: &Double, tool: &str, arguments: Value) -> Value {
    let result = call(&boxes.agent(), tool, arguments, json!({})).await;
    Value::Object(result.expect("a result"))
}

#[tokio::test]
async fn read_says_how_to_read_the_rest() {
    let boxes = Double::default();
    boxes
        .world()
        .files
        .insert("/workspace/a".to_owned(), b"1\n2\n3\n".to_vec());
    let whole = result(&boxes, "read", json!({"path": "/workspace/a"})).await;
    assert_eq!(
        (&whole["ok"], &whole["content"]),
        (&json!(true), &json!("1\n2\n3\n"))
    );
    assert_eq!(
        (&whole["is_directory"], &whole["truncated"]),
        (&json!(false), &json!(false))
    );
    assert!(whole.get("notice").is_none());
    let part = result(&boxes, "read", json!({"path": "/workspace/a", "limit": 2})).await;
    assert_eq!(part["truncated"], true);
    assert_eq!(part["notice"], "there is more; go on with offset 4");
    boxes
        .world()
        .files
        .insert("/workspace/b".to_owned(), b"\0\x01".to_vec());
    let binary = result(&boxes, "read", json!({"path": "/workspace/b"})).await;
    assert_eq!(binary["is_binary"], true);
    assert!(
        binary["notice"]
            .as_str()
            .expect("text")
            .contains("binary file of 2 bytes")
    );
}

#[tokio::test]
async fn paths_are_normalised_and_must_stay_in_the_workspace() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let arguments = json!({"path": "/workspace//x/../a.txt", "content": "hi"});
    let written = result(&boxes, "write", arguments).await;
    assert_eq!(
        written,
        json!({"ok": true, "path": "/workspace/a.txt", "size": 2, "created": true})
    );
    let request = WriteTextRequest {
        path: "/workspace/a.txt".to_owned(),
        content: "hi".to_owned(),
    };
    assert!(boxes.requests().contains(&BoxRequest::Write(request)));
    let cases = [
        ("/etc/passwd", "Path must be under /workspace."),
        ("a.txt", "Path must be under /workspace."),
        (
            "/workspace/../etc/passwd",
            "Path escapes the workspace boundary.",
        ),
        (
            "/workspace/.skills",
            "Path must include a skill name under /workspace/.skills/<skill-name>.",
        ),
    ];
    for (path, expected) in cases {
        for tool in ["read", "glob", "grep", "write", "edit"] {
            let arguments = match tool {
                "read" => json!({"path": path}),
                "write" => json!({"path": path, "content": ""}),
                "edit" => json!({"path": path, "old_string": "a", "new_string": "b"}),
                _ => json!({"path": path, "pattern": "x"}),
            };
            let error = call(&agent, tool, arguments, json!({}))
                .await
                .expect_err("refused");
            assert_eq!(error.message, expected, "{tool} {path}");
            assert_eq!(error.code, ErrorCode::ValidationError);
        }
    }
    // What is kept of outputs is for reading.
    let kept = json!({"path": "/tmp/.boxwood/output/1.stdout", "content": ""});
    let error = call(&agent, "write", kept, json!({}))
        .await
        .expect_err("refused");
    assert_eq!(error.message, "Path must be under /workspace.");
}

#[tokio::test]
async fn edit_glob_and_grep_pass_on_what_they_were_given() {
    let boxes = Double::default();
    let edit = json!({"path": "/workspace/a", "old_string": "a", "new_string": "b"});
    let edited = result(&boxes, "edit", edit).await;
    assert_eq!(
        edited,
        json!({"ok": true, "path": "/workspace/a", "replaced": 1, "diff": "a diff", "size": 9})
    );
    let found = result(&boxes, "glob", json!({"pattern": "*.py"})).await;
    assert_eq!(
        found,
        json!({"ok": true, "matches": ["/workspace/a.py"], "total": 1, "truncated": false})
    );
    let grep = json!({"pattern": "x", "path": "/workspace/src", "include": "*.py"});
    let found = result(&boxes, "grep", grep).await;
    assert_eq!(
        found,
        json!({
            "ok": true, "total": 1, "truncated": false, "files_searched": 4,
            "matches": [{"file": "/workspace/a.py", "line": 3, "content": "x = 1"}]
        })
    );
    let requests = boxes.requests();
    assert!(requests.contains(&BoxRequest::Edit(EditTextRequest {
        path: "/workspace/a".to_owned(),
        old_string: "a".to_owned(),
        new_string: "b".to_owned(),
        replace_all: false,
    })));
    assert!(requests.contains(&BoxRequest::Glob(GlobRequest {
        pattern: "*.py".to_owned(),
        path: "/workspace".to_owned(),
        limit: Some(100),
        ignored: false,
    })));
    assert!(requests.contains(&BoxRequest::Grep(GrepRequest {
        pattern: "x".to_owned(),
        path: "/workspace/src".to_owned(),
        include: Some("*.py".to_owned()),
        limit: Some(200),
        ..GrepRequest::default()
    })));
}

#[tokio::test]
async fn a_refusal_of_the_box_is_a_result_with_its_text() {
    let boxes = Double::default();
    let cases = [
        (
            "edit_text",
            "edit",
            ErrorCode::ValidationError,
            "old_string not found in file.",
        ),
        (
            "grep",
            "grep",
            ErrorCode::ValidationError,
            "Invalid regex: unclosed group",
        ),
        (
            "glob",
            "glob",
            ErrorCode::ValidationError,
            "Path is not a directory: /workspace/a",
        ),
        (
            "write_text",
            "write",
            ErrorCode::Capacity,
            "no space is left",
        ),
    ];
    for (method, tool, code, message) in cases {
        boxes.world().failing.insert(method, failure(code, message));
        let arguments = match tool {
            "write" => json!({"path": "/workspace/a", "content": ""}),
            "edit" => json!({"path": "/workspace/a", "old_string": "a", "new_string": "b"}),
            _ => json!({"path": "/workspace/a", "pattern": "("}),
        };
        let got = result(&boxes, tool, arguments).await;
        assert_eq!(got, json!({"ok": false, "error": message}), "{tool}");
    }
}

#[tokio::test]
async fn a_box_that_cannot_be_created_is_an_error() {
    let boxes = Double::default();
    let full = failure(ErrorCode::Capacity, "too many sessions");
    boxes.world().failing.insert("get_or_create", full);
    let error = call(&boxes.agent(), "glob", json!({"pattern": "*"}), json!({}))
        .await
        .expect_err("no box");
    assert_eq!((error.code, error.state), (ErrorCode::Capacity, None));
    assert_eq!(error.message, "too many sessions");
}
