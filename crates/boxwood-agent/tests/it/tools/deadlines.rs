//! Nothing waits for ever, and what is dropped is killed.

use std::time::Duration;

use boxwood_agent::NoProgress;
use boxwood_api::{AgentQuery, AgentState, ErrorCode, ToolCall};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::double::{Double, Step, call};

fn hanging(methods: &[&'static str]) -> Double {
    let boxes = Double::default();
    boxes.world().hanging.extend(methods);
    boxes.add_skill("csv");
    boxes
}

async fn ends_within(boxes: &Double, tool: &str, arguments: Value, longest_sec: u64) {
    let began = Instant::now();
    let error = call(&boxes.agent(), tool, arguments, json!({}))
        .await
        .expect_err("it cannot work");
    assert_eq!(error.code, ErrorCode::Timeout, "{}", error.message);
    let taken = began.elapsed();
    assert!(
        taken <= Duration::from_secs(longest_sec),
        "{tool}: {taken:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_tool_waits_for_a_runtime_that_hangs() {
    let path = || json!({"path": "/workspace/a"});
    ends_within(&hanging(&["skills"]), "read", path(), 90).await;
    ends_within(&hanging(&["get_or_create"]), "read", path(), 90).await;
    ends_within(&hanging(&["read_text"]), "read", path(), 90).await;
    let write = json!({"path": "/workspace/a", "content": ""});
    ends_within(&hanging(&["write_text"]), "write", write, 90).await;
    let edit = json!({"path": "/workspace/a", "old_string": "a", "new_string": "b"});
    ends_within(&hanging(&["edit_text"]), "edit", edit, 90).await;
    ends_within(&hanging(&["glob"]), "glob", json!({"pattern": "*"}), 90).await;
    ends_within(&hanging(&["grep"]), "grep", json!({"pattern": "x"}), 90).await;
    let skill = json!({"skill_name": "csv"});
    ends_within(&hanging(&["skill"]), "activate", skill, 90).await;
    ends_within(&hanging(&["register_skill"]), "register_skill", path(), 90).await;
}

#[tokio::test(start_paused = true)]
async fn a_box_that_does_not_start_costs_only_the_time_to_start() {
    let command = json!({"command": "x", "timeout_sec": 600});
    for method in ["exec", "skills"] {
        ends_within(&hanging(&[method]), "exec", command.clone(), 61).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_command_ends_with_its_output_so_far() {
    let boxes = Double::default();
    boxes.next_command(vec![Step::Out(Bytes::from_static(b"so far")), Step::Hangs]);
    let began = Instant::now();
    let arguments = json!({"command": "x", "timeout_sec": 5});
    let result = call(&boxes.agent(), "exec", arguments, json!({}))
        .await
        .expect("what there is");
    assert!(began.elapsed() <= Duration::from_secs(5 + 25));
    assert_eq!(
        (&result["status"], &result["ok"]),
        (&json!("timed_out"), &json!(false))
    );
    assert_eq!(
        (&result["stdout"], &result["reason"]),
        (&json!("so far"), &json!("timeout"))
    );
    assert_eq!(boxes.world().killed, 1);
}

/// The timeout that the runtime returns counts, not the requested one.
#[tokio::test(start_paused = true)]
async fn a_call_waits_until_the_timeout_of_its_command() {
    for (requested_sec, granted_sec) in [(json!(null), 2), (json!(null), 600), (json!(5), 600)] {
        let boxes = Double::default();
        boxes.world().granted_sec = Some(granted_sec);
        boxes.next_command(vec![Step::Hangs]);
        let mut arguments = json!({"command": "x"});
        if !requested_sec.is_null() {
            arguments["timeout_sec"] = requested_sec.clone();
        }
        let began = Instant::now();
        let result = call(&boxes.agent(), "exec", arguments, json!({}))
            .await
            .expect("its end");
        let taken = began.elapsed().as_secs();
        assert!(
            (granted_sec..=granted_sec + 25).contains(&taken),
            "{requested_sec}, {granted_sec}: {taken}"
        );
        assert_eq!(result["reason"], "timeout");
        assert_eq!(boxes.execs()[0].timeout_sec, requested_sec.as_u64());
    }
}

#[tokio::test(start_paused = true)]
async fn a_box_that_hangs_while_output_is_saved_delays_the_result_by_at_most_15_seconds() {
    for method in ["list", "write_file"] {
        let boxes = hanging(&[method]);
        boxes.next_command(vec![Step::Out(Bytes::from(vec![b'x'; 9_000]))]);
        let began = Instant::now();
        let result = call(&boxes.agent(), "exec", json!({"command": "x"}), json!({}))
            .await
            .expect("the result");
        assert!(began.elapsed() <= Duration::from_secs(15));
        assert_eq!(result["ok"], true);
        let notice = result["notices"][0].as_str().expect("a notice");
        assert!(notice.contains("could not be kept"), "{notice}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_requests_have_a_short_timeout() {
    let boxes = hanging(&["status", "sessions", "skills"]);
    let agent = boxes.agent();
    let began = Instant::now();
    let status = agent.status().await;
    assert_eq!(status.state, AgentState::Unavailable);
    assert!(status.connector_error.contains("did not answer"));
    assert!(agent.tools().await.tools.is_empty());
    assert!(agent.sessions().await.is_empty());
    assert_eq!(agent.guidance(&AgentQuery::default()).await.text, "");
    assert!(began.elapsed() <= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_kills_its_command() {
    let boxes = Double::default();
    boxes.next_command(vec![Step::Hangs]);
    let agent = boxes.agent();
    let arguments = json!({"arguments": {"command": "sleep 1000", "timeout_sec": 1000}});
    let call: ToolCall = serde_json::from_value(arguments).expect("a call");
    let given_up = tokio::time::timeout(
        Duration::from_secs(1),
        agent.call("exec", call, &NoProgress),
    )
    .await;
    assert!(given_up.is_err());
    assert_eq!(boxes.world().killed, 1);
    // Not a failure: the caller cancelled.
    assert!(agent.recent_errors().is_empty());
}
