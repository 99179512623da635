//! The ring of recent errors.

use boxwood_api::{ErrorCode, ExecExit, Reason};
use serde_json::{Value, json};

use crate::double::{Double, Step, call, exit, failure};

#[tokio::test]
async fn a_failed_call_is_recorded_once_with_its_query() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let conflict = failure(ErrorCode::SessionConflict, "network differs");
    boxes.world().failing.insert("exec", conflict);
    for id in [json!(42), json!("abc"), Value::Null] {
        let error = call(
            &agent,
            "exec",
            json!({"command": "x"}),
            json!({"query_id": id}),
        )
        .await
        .expect_err("refused");
        assert_eq!(error.code, ErrorCode::SessionConflict);
    }
    let errors = agent.recent_errors();
    let ids: Vec<&str> = errors.iter().map(|error| error.query_id.as_str()).collect();
    assert_eq!(ids, ["42", "abc", "unknown"]);
    assert!(
        errors
            .iter()
            .all(|error| error.message == "network differs")
    );
    assert_eq!(errors[0].kind, ErrorCode::SessionConflict);
    assert_eq!(agent.status().await.recent_error_count, 3);
}

#[tokio::test]
async fn only_the_last_fifty_errors_are_recorded() {
    let agent = Double::default().agent();
    for number in 0..60 {
        let query = json!({"query_id": number});
        call(&agent, "read", json!({"path": "/etc/passwd"}), query)
            .await
            .expect_err("outside");
    }
    let errors = agent.recent_errors();
    assert_eq!(errors.len(), 50);
    assert_eq!(
        (errors[0].query_id.as_str(), errors[49].query_id.as_str()),
        ("10", "59")
    );
}

#[tokio::test]
async fn a_failed_operation_is_a_result_and_no_error() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let result = call(
        &agent,
        "read",
        json!({"path": "/workspace/none"}),
        json!({}),
    )
    .await
    .expect("a result");
    assert_eq!(result["ok"], false);
    assert_eq!(result["error"], "File not found: /workspace/none");
    assert!(agent.recent_errors().is_empty());
}

#[tokio::test]
async fn a_command_over_the_quota_is_recorded() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let quota_notice = "workspace quota exceeded after execution: used=3 bytes limit=2 bytes \
                host_path=/w session_id=s";
    let over = |reason, notices: &[&str]| ExecExit {
        reason,
        notices: notices.iter().map(|&notice| notice.to_owned()).collect(),
        ..exit(0)
    };
    for end in [
        over(Some(Reason::DiskQuota), &[]),
        over(None, &["a word", quota_notice]),
        over(Some(Reason::DiskQuota), &[quota_notice]),
        over(Some(Reason::Oom), &["another"]),
        exit(1),
    ] {
        boxes.next_command(vec![Step::Ends(end)]);
        let query = json!({"query_id": 7});
        let result = call(&agent, "exec", json!({"command": "x"}), query).await;
        assert_eq!(result.expect("a result")["status"], "completed");
    }
    let errors = agent.recent_errors();
    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    let stopped = "a command was stopped: the box's disk quota is used up";
    assert_eq!(messages, [stopped, quota_notice, quota_notice]);
    assert!(errors.iter().all(|error| error.query_id == "7"));
    assert_eq!(errors[0].kind, ErrorCode::ValidationError);
}

#[tokio::test]
async fn an_unknown_tool_and_unknown_fields_are_refused() {
    let agent = Double::default().agent();
    let error = call(&agent, "rm", json!({}), json!({}))
        .await
        .expect_err("unknown");
    assert_eq!(error.code, ErrorCode::NotFound);
    let error = call(
        &agent,
        "read",
        json!({"path": "/workspace", "mode": 1}),
        json!({}),
    )
    .await
    .expect_err("unknown");
    assert_eq!(error.code, ErrorCode::ValidationError);
    assert_eq!(agent.recent_errors().len(), 2);
}
