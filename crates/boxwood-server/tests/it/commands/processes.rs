//! Managed processes over HTTP.

use serde_json::json;

use crate::api::{Api, eventually, refused};

#[tokio::test]
async fn a_process_is_started_shown_signalled_and_stopped() {
    let api = Api::start().await;
    api.post("/v1/sessions/p", &json!({})).await;
    let base = "/v1/sessions/p/managed-process";
    refused(&api.get(base).await, 404, "managed_process_not_found");
    let (status, started) = api
        .post(
            base,
            &json!({"command": "cat", "env": {"SECRET": "s3cret"}}),
        )
        .await;
    assert_eq!(status, 201, "{started}");
    assert_eq!(started["process_id"], "default");
    assert_eq!(started["status"], "running");
    assert_eq!(started["env_keys"], json!(["SECRET"]));
    assert!(!started.to_string().contains("s3cret"));
    let conflict = api.post(base, &json!({"command": "cat"})).await;
    refused(&conflict, 409, "managed_process_conflict");
    assert_eq!(
        conflict.1["error"]["message"],
        "session p already has a managed process"
    );
    let (status, _) = api
        .post(
            &format!("{base}/second"),
            &json!({"command": "cat", "process_id": "ignored"}),
        )
        .await;
    assert_eq!(status, 201);
    let (_, list) = api.get("/v1/sessions/p/processes").await;
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    let (_, session) = api.get("/v1/sessions/p").await;
    assert_eq!(session["managed_process"]["process_id"], "default");
    assert_eq!(session["managed_processes"]["second"]["status"], "running");

    let (status, answer) = api
        .post(&format!("{base}/second/signal"), &json!({"signal": "TERM"}))
        .await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer, json!({"signalled": "second"}));
    let path = format!("{base}/second");
    eventually("the signal ends it", || async {
        let (_, process) = api.get(&path).await;
        process["status"] == "exited" && process["exit_code"] == 143
    })
    .await;
    refused(
        &api.post(&format!("{path}/signal"), &json!({"signal": 15}))
            .await,
        409,
        "managed_process_conflict",
    );
    refused(
        &api.post(&format!("{path}/signal"), &json!({"signal": "NOPE"}))
            .await,
        400,
        "validation_error",
    );

    let (status, stopped) = api.delete(base).await;
    assert_eq!(status, 200, "{stopped}");
    assert_eq!(stopped, json!({"stopped": "default"}));
    refused(&api.get(base).await, 404, "managed_process_not_found");
    refused(&api.delete(base).await, 404, "managed_process_not_found");
}

#[tokio::test]
async fn what_a_process_wrote_can_be_read() {
    let api = Api::start().await;
    api.post("/v1/sessions/l", &json!({})).await;
    let base = "/v1/sessions/l/managed-process";
    api.post(
        base,
        &json!({"command": "sh", "args": ["-c", "echo out; echo err >&2; exit 5"]}),
    )
    .await;
    eventually("it ends", || async {
        api.get(base).await.1["status"] == "exited"
    })
    .await;
    let (_, process) = api.get(base).await;
    assert_eq!(process["exit_code"], 5);
    assert_eq!(process["stderr_preview"], "err");
    let (status, logs) = api.get(&format!("{base}/default/logs")).await;
    assert_eq!(status, 200);
    assert_eq!(logs["stdout"], "out\n");
    assert_eq!(logs["stderr"], "err\n");
    refused(
        &api.get(&format!("{base}/nope/logs")).await,
        404,
        "managed_process_not_found",
    );
}

#[tokio::test]
async fn processes_need_their_session() {
    let api = Api::start().await;
    let base = "/v1/sessions/none";
    let spec = json!({"command": "cat"});
    refused(
        &api.post(&format!("{base}/managed-process"), &spec).await,
        404,
        "session_not_found",
    );
    for path in [
        "managed-process",
        "managed-process/x",
        "processes",
        "managed-process/x/logs",
    ] {
        refused(
            &api.get(&format!("{base}/{path}")).await,
            404,
            "session_not_found",
        );
    }
}
