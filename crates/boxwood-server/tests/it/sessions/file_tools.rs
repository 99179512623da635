//! The routes that agents' file tools are made of.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::api::{Api, refused};

async fn with_session() -> Api {
    let api = Api::start().await;
    let (status, body) = api.post("/v1/sessions/t", &json!({})).await;
    assert_eq!(status, 201, "{body}");
    api
}

async fn call(api: &Api, tool: &str, body: Value) -> (StatusCode, Value) {
    let target = format!("/v1/sessions/t/files/{tool}");
    api.post(&target, &body).await
}

#[tokio::test]
async fn a_text_is_written_read_edited_and_found() {
    let api = with_session().await;
    let path = "/workspace/src/main.py";
    let (status, written) = call(
        &api,
        "write",
        json!({"path": path, "content": "def main():\n    return 1\n"}),
    )
    .await;
    assert_eq!(status, 200, "{written}");
    assert_eq!(written, json!({"path": path, "size": 25, "created": true}));
    let (status, slice) = call(&api, "read", json!({"path": path, "offset": 2})).await;
    assert_eq!(status, 200, "{slice}");
    assert_eq!(slice["content"], "    return 1\n");
    assert_eq!(slice["total_lines"], 2);
    let (status, edited) = call(
        &api,
        "edit",
        json!({"path": path, "old_string": "return 1", "new_string": "return 2"}),
    )
    .await;
    assert_eq!(status, 200, "{edited}");
    let diff = edited["diff"].as_str().expect("a diff");
    assert!(diff.contains("-    return 1\n+    return 2\n"), "{diff}");
    let (status, found) = call(
        &api,
        "glob",
        json!({"pattern": "*.py", "path": "/workspace"}),
    )
    .await;
    assert_eq!(status, 200, "{found}");
    assert_eq!(
        found,
        json!({"matches": [path], "total": 1, "truncated": false})
    );
    let (status, found) = call(
        &api,
        "grep",
        json!({"pattern": "return \\d", "path": "/workspace"}),
    )
    .await;
    assert_eq!(status, 200, "{found}");
    assert_eq!(
        found["matches"],
        json!([{"file": path, "line": 2, "content": "    return 2"}])
    );
}

#[tokio::test]
async fn refusals_keep_their_words_and_their_codes() {
    let api = with_session().await;
    call(
        &api,
        "write",
        json!({"path": "/workspace/f", "content": "aa"}),
    )
    .await;
    for (tool, body, code, message) in [
        (
            "read",
            json!({"path": "/workspace/none"}),
            (404, "not_found"),
            "File not found: /workspace/none",
        ),
        (
            "edit",
            json!({"path": "/workspace/f", "old_string": "b", "new_string": ""}),
            (400, "validation_error"),
            "old_string not found in file.",
        ),
        (
            "edit",
            json!({"path": "/workspace/f", "old_string": "a", "new_string": ""}),
            (400, "validation_error"),
            "old_string matches 2 locations; provide a more unique string.",
        ),
        (
            "glob",
            json!({"pattern": "*", "path": "/workspace/f"}),
            (400, "validation_error"),
            "Path is not a directory: /workspace/f",
        ),
        (
            "grep",
            json!({"pattern": "a", "path": "/workspace/none"}),
            (404, "not_found"),
            "Path not found: /workspace/none",
        ),
        (
            "read",
            json!({"path": "f"}),
            (400, "validation_error"),
            "path must be an absolute path inside the sandbox",
        ),
        (
            "grep",
            json!({"pattern": "a", "path": "/workspace", "limit": 0}),
            (400, "validation_error"),
            "limit must be at least 1",
        ),
    ] {
        let answer = call(&api, tool, body).await;
        refused(&answer, code.0, code.1);
        assert_eq!(answer.1["error"]["message"], message);
    }
    let (status, body) = call(&api, "grep", json!({"pattern": "(", "path": "/workspace"})).await;
    assert_eq!(status, 400, "{body}");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.starts_with("Invalid regex: "), "{message}");
    let (status, body) = call(&api, "read", json!({"path": "/f", "unknown": 1})).await;
    assert_eq!(status, 400, "{body}");
}
