//! Results of `exec`.

use std::sync::Mutex;

use boxwood_agent::{AgentSettings, Progress, Stream};
use boxwood_api::{ErrorCode, ExecExit, ExecStatus, Reason, ToolCall};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::double::{Double, Step, call, failure, unreached};

async fn ran(boxes: &Double, steps: Vec<Step>) -> Map<String, Value> {
    boxes.next_command(steps);
    call(&boxes.agent(), "exec", json!({"command": "x"}), json!({}))
        .await
        .expect("it runs")
}

fn out(text: &str) -> Step {
    Step::Out(Bytes::copy_from_slice(text.as_bytes()))
}

fn err(text: &str) -> Step {
    Step::Err(Bytes::copy_from_slice(text.as_bytes()))
}

#[tokio::test]
async fn a_result_has_the_words_that_platforms_know() {
    let boxes = Double::default();
    let steps = vec![out("  one\n"), err("two\n"), out("three\n"), Step::Exit(0)];
    let result = ran(&boxes, steps).await;
    let expected = json!({
        "session_id": "query_unknown", "backend": "memory", "status": "completed", "ok": true,
        "exit_code": 0, "stdout": "  one\nthree\n", "stderr": "two\n",
        "stdout_truncated": false, "stderr_truncated": false, "duration_ms": 3
    });
    assert_eq!(Value::Object(result), expected);
    assert_eq!(boxes.world().killed, 0);
}

#[tokio::test]
async fn a_command_that_fails_is_a_result() {
    let boxes = Double::default();
    let result = ran(&boxes, vec![Step::Exit(3)]).await;
    assert_eq!(
        (&result["ok"], &result["exit_code"]),
        (&json!(false), &json!(3))
    );
    let killed = ExecExit {
        exit_code: Some(137),
        status: ExecStatus::Completed,
        reason: Some(Reason::DiskQuota),
        duration_ms: 9,
        notices: Vec::new(),
    };
    let result = ran(&boxes, vec![Step::Ends(killed)]).await;
    assert_eq!(result["reason"], "disk_quota");
    assert!(
        result["notices"][0]
            .as_str()
            .expect("a notice")
            .contains("quota")
    );
    let full = ExecExit {
        exit_code: Some(0),
        status: ExecStatus::Completed,
        reason: None,
        duration_ms: 9,
        notices: vec!["the workspace is full".to_owned()],
    };
    let result = ran(&boxes, vec![Step::Ends(full)]).await;
    assert_eq!(result["ok"], json!(true));
    assert_eq!(result["notices"], json!(["the workspace is full"]));
    let late = ExecExit {
        exit_code: None,
        status: ExecStatus::TimedOut,
        reason: Some(Reason::Timeout),
        duration_ms: 30_000,
        notices: Vec::new(),
    };
    let result = ran(&boxes, vec![out("so far"), Step::Ends(late)]).await;
    assert_eq!(
        (&result["status"], &result["reason"]),
        (&json!("timed_out"), &json!("timeout"))
    );
    assert_eq!(
        (&result["ok"], &result["exit_code"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(result["stdout"], "so far");
}

#[tokio::test]
async fn streams_are_truncated_separately() {
    let boxes = Double::default();
    let result = ran(&boxes, vec![out(&"o".repeat(10_000)), err("short")]).await;
    let stdout = result["stdout"].as_str().expect("text");
    let notice = "\n\n... [6039 characters truncated] ...\n\n";
    let expected = format!("{}{notice}{}", "o".repeat(2376), "o".repeat(1585));
    assert_eq!(stdout, expected);
    assert_eq!(result["stderr"], "short");
    assert_eq!(result["stdout_truncated"], true);
    assert_eq!(result["stderr_truncated"], false);
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_are_replaced() {
    let boxes = Double::default();
    let broken = Step::Out(Bytes::from_static(b"a\xff\xe2\x82"));
    let end = Step::Out(Bytes::from_static(b"\xac\xe2"));
    let result = ran(&boxes, vec![broken, end]).await;
    assert_eq!(result["stdout"], "a\u{fffd}€\u{fffd}");
}

#[tokio::test]
async fn changes_by_the_profile_are_reported() {
    let boxes = Double::default();
    boxes.world().notices = vec!["timeout_sec was lowered from 999 to 120".to_owned()];
    let result = ran(&boxes, vec![]).await;
    assert_eq!(
        result["notices"],
        json!(["timeout_sec was lowered from 999 to 120"])
    );
}

#[tokio::test]
async fn output_before_the_runtime_was_lost_is_returned() {
    let boxes = Double::default();
    let agent = boxes.agent();
    boxes.next_command(vec![
        out("half"),
        Step::Breaks(unreached("connection reset")),
    ]);
    let result = call(
        &agent,
        "exec",
        json!({"command": "x"}),
        json!({"query_id": 5}),
    )
    .await
    .expect("what there is");
    assert_eq!(
        (&result["status"], &result["ok"]),
        (&json!("failed"), &json!(false))
    );
    assert_eq!(
        (&result["stdout"], &result["exit_code"]),
        (&json!("half"), &Value::Null)
    );
    assert_eq!(
        result["error"],
        "Box runtime is not available: connection reset"
    );
    boxes.next_command(vec![Step::Breaks(failure(
        ErrorCode::SessionGone,
        "the box is gone",
    ))]);
    let error = call(
        &agent,
        "exec",
        json!({"command": "x"}),
        json!({"query_id": 6}),
    )
    .await
    .expect_err("there is nothing");
    assert_eq!(error.code, ErrorCode::SessionGone);
    assert_eq!(boxes.world().killed, 2);
}

#[derive(Default)]
struct Seen {
    output: Mutex<Vec<(Stream, String)>>,
    steps: Mutex<Vec<String>>,
}

impl Progress for Seen {
    fn output(&self, stream: Stream, text: &str) {
        let mut output = self.output.lock().expect("not poisoned");
        output.push((stream, text.to_owned()));
    }

    fn step(&self, text: &str) {
        self.steps
            .lock()
            .expect("not poisoned")
            .push(text.to_owned());
    }
}

#[tokio::test]
async fn output_is_seen_while_the_command_runs() {
    let boxes = Double::default();
    boxes.next_command(vec![
        out("a"),
        Step::Err(Bytes::from_static(b"\xf0\x9f")),
        Step::Err(Bytes::from_static(b"\xa6\x80!")),
        out("b"),
    ]);
    let seen = Seen::default();
    let call: ToolCall =
        serde_json::from_value(json!({"arguments": {"command": "x"}})).expect("a call");
    let answer = boxes
        .agent()
        .call("exec", call, &seen)
        .await
        .expect("it runs");
    assert_eq!(answer.session_id.as_deref(), Some("query_unknown"));
    let output = seen.output.into_inner().expect("not poisoned");
    let expected = [
        (Stream::Stdout, "a".to_owned()),
        (Stream::Stderr, "🦀!".to_owned()),
        (Stream::Stdout, "b".to_owned()),
    ];
    assert_eq!(output, expected);
    assert!(!seen.steps.into_inner().expect("not poisoned").is_empty());
}

#[tokio::test]
async fn a_workdir_outside_the_workspace_must_not_contain_parent_components() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let run = async |workdir: &str| {
        let arguments = json!({"command": "x", "workdir": workdir});
        call(&agent, "exec", arguments, json!({}))
            .await
            .map_err(|error| error.message)
    };
    run("/workspace/./a//b").await.expect("it runs");
    run("/tmp").await.expect("it runs");
    let workdirs: Vec<_> = boxes.execs().into_iter().map(|spec| spec.workdir).collect();
    assert_eq!(
        workdirs,
        [Some("/workspace/a/b".to_owned()), Some("/tmp".to_owned())]
    );
    for detour in ["/tmp/../workspace/.skills/csv", "/workspace/../etc"] {
        let refused = run(detour).await.expect_err("refused");
        assert_eq!(refused, "Path escapes the workspace boundary.");
    }
}

#[tokio::test]
async fn the_limit_of_shown_output_is_the_operators() {
    let boxes = Double::default();
    boxes.next_command(vec![out(&"x".repeat(520))]);
    let agent = boxes.agent_with(AgentSettings {
        output_limit_chars: 100,
        ..AgentSettings::default()
    });
    let result = call(&agent, "exec", json!({"command": "x"}), json!({}))
        .await
        .expect("it runs");
    let notice = "\n\n... [458 characters truncated] ...\n\n";
    let expected = format!("{}{notice}{}", "x".repeat(37), "x".repeat(25));
    assert_eq!(result["stdout"], Value::from(expected));
}
