//! What is done when a server does not start, or ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, McpPhase, McpProgress, McpStatus};
use futures_util::StreamExt as _;
use serde_json::{Map, json};
use tokio::time::Instant;

use super::{Habits, House, name};
use crate::hosting::{Gone, HostingError, Runtime as _, Standing};

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_at_once_has_four_attempts_with_pauses_of_2_4_and_8_seconds() {
    let house = House::new();
    let habits = Habits {
        complains: "no TOKEN\n",
        ..Habits::living([Some(0)])
    };
    let runs = habits.runs.clone();
    house.knows("doomed", habits);
    let began = Instant::now();
    let doomed = house
        .add(json!({"name": "doomed", "command": "doomed"}))
        .await;
    let pausing = house
        .until(&doomed, |runtime| runtime.retry_at.is_some())
        .await;
    assert_eq!(pausing.status, McpStatus::Connecting);
    assert_eq!(
        (pausing.retry_count, pausing.error_phase),
        (1, Some(McpPhase::McpInit))
    );
    let progress = house.hosting.progress(&doomed).expect("there");
    let progress: Vec<_> = progress.collect().await;
    let waits = progress.iter().filter_map(|progress| match progress {
        McpProgress::Waiting {
            why,
            retry_count,
            until: Some(_),
        } if why.contains("failed in mcp_init: ") && why.contains("no TOKEN") => Some(*retry_count),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [1, 2, 3], "{progress:?}");
    let failed = house.until_status(&doomed, McpStatus::Error).await;
    let took = began.elapsed().as_secs();
    assert!((14..20).contains(&took), "{took}");
    assert_eq!(runs.load(Ordering::Relaxed), 4);
    assert_eq!(
        (failed.retry_count, failed.error_phase),
        (4, Some(McpPhase::McpInit))
    );
    let message = failed.error_message.expect("a message");
    assert!(
        message.starts_with("Failed after 4 attempts: "),
        "{message}"
    );
    assert!(
        message.contains("exit code 3") && message.contains("no TOKEN"),
        "{message}"
    );
    assert_eq!(house.runtime.names(), [""; 0], "nothing is left running");
    assert_eq!(failed.box_session_id, None);
    let logs = house.hosting.logs(&doomed).await.expect("logs");
    let again = "--- started again ---\n";
    let attempts = ["no TOKEN\n"; 4].join(again);
    assert_eq!(logs.stderr, attempts, "each said the same");
    // Nothing more happens until somebody asks.
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 4);
    house.hosting.start(&doomed).await.expect("started");
    house.until_status(&doomed, McpStatus::Error).await;
    assert_eq!(runs.load(Ordering::Relaxed), 8);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_somebody_else_holds_fails_in_phase_relay_connect() {
    let house = House::new();
    house.runtime.held.store(true, Ordering::Relaxed);
    let time = house.add(json!({"name": "time", "command": "well"})).await;
    let failed = house.until_status(&time, McpStatus::Error).await;
    assert_eq!(failed.error_phase, Some(McpPhase::RelayConnect));
    let message = failed.error_message.expect("a message");
    assert!(message.contains("somebody holds it already"), "{message}");
    assert_eq!(house.runtime.names(), [""; 0], "nothing is left running");
    house.runtime.held.store(false, Ordering::Relaxed);
    house.hosting.start(&time).await.expect("started");
    house.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_names_its_phase_and_whose_fault_it_was() {
    let house = House::new();
    let time = house.well("time").await;
    for (code, expected) in [
        (-32602, ErrorCode::ValidationError),
        (-32000, ErrorCode::BackendUnavailable),
    ] {
        let arguments = Map::from_iter([("code".to_owned(), json!(code))]);
        let refused = house.hosting.call(&time, "refuse", arguments).await;
        let refused = refused.expect_err("refused");
        assert_eq!(refused.code(), expected, "{refused}");
        assert_eq!(refused.phase(), Some(McpPhase::ToolCall));
        assert!(refused.to_string().contains(&code.to_string()), "{refused}");
    }
    let arguments = Map::from_iter([("seconds".to_owned(), json!(7200))]);
    let late = house.hosting.call(&time, "wait", arguments).await;
    let late = late.expect_err("too slow");
    assert_eq!(late.code(), ErrorCode::Timeout, "{late}");
    assert_eq!(late.phase(), Some(McpPhase::ToolCall));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_runs_out_of_its_time_in_phase_mcp_init() {
    let house = House::new();
    let deaf = Habits {
        deaf_after: Some(Duration::ZERO),
        ..Habits::default()
    };
    house.knows("deaf", deaf);
    let settings = json!({"startup_timeout_sec": 5});
    let deaf = house
        .add(json!({"name": "deaf", "command": "deaf", "box": settings}))
        .await;
    let began = Instant::now();
    let waiting = house.hosting.server(&deaf).await.err().expect("no server");
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(waiting.phase(), Some(McpPhase::McpInit), "{waiting}");
    let failed = house.until_status(&deaf, McpStatus::Error).await;
    let took = began.elapsed().as_secs();
    assert!(
        (34..40).contains(&took),
        "four times five seconds and the pauses: {took}"
    );
    let message = failed.error_message.expect("a message");
    assert!(
        message.contains("Connection timeout after 5 seconds"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_health_forgets_what_failed_before() {
    let house = House::new();
    let habits = Habits::living([Some(0), Some(0), Some(61), Some(61), Some(61), None]);
    let runs = habits.runs.clone();
    house.knows("frail", habits);
    let frail = house
        .add(json!({"name": "frail", "command": "frail"}))
        .await;
    house
        .until(&frail, |runtime| {
            runtime.status == McpStatus::Connected && runtime.retry_count == 2
        })
        .await;
    house
        .until(&frail, |runtime| {
            runtime.status == McpStatus::Connected && runtime.retry_count == 0
        })
        .await;
    let ended = house
        .until(&frail, |runtime| runtime.retry_at.is_some())
        .await;
    assert_eq!(ended.retry_count, 1, "it counts anew");
    assert_eq!(ended.error_phase, Some(McpPhase::Runtime));
    let message = ended.error_message.expect("a message");
    assert!(
        message.starts_with("Box managed process exited unexpectedly"),
        "{message}"
    );
    house
        .until(&frail, |runtime| {
            runtime.status == McpStatus::Connected && runs.load(Ordering::Relaxed) == 6
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn six_ends_within_five_minutes_are_a_crash_loop() {
    let house = House::new();
    let habits = Habits::living([0, 0, 0, 61, 0, 0, 0].map(Some));
    let runs = habits.runs.clone();
    house.knows("loops", habits);
    let loops = house
        .add(json!({"name": "loops", "command": "loops"}))
        .await;
    let failed = house.until_status(&loops, McpStatus::Error).await;
    let message = failed.error_message.expect("a message");
    assert!(message.starts_with("The server ended 6 times"), "{message}");
    assert_eq!(runs.load(Ordering::Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn without_boxes_nothing_is_tried_and_their_return_starts_it() {
    let house = House::new();
    house.runtime.stands(Standing::Disabled);
    let time = house.add(json!({"name": "time", "command": "well"})).await;
    let refused = house.until_status(&time, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::BoxUnavailable));
    assert_eq!(
        refused.error_message.as_deref(),
        Some("box_disabled_in_config")
    );
    assert_eq!((refused.retry_count, refused.box_session_id), (0, None));
    let error = house.hosting.server(&time).await.err().expect("no server");
    assert!(
        matches!(error, HostingError::Unavailable { .. }),
        "{error:?}"
    );
    house.runtime.stands(Standing::Unavailable {
        message: "no user namespaces".to_owned(),
        hint: Some("turn them on".to_owned()),
    });
    let refused = house
        .until(&time, |runtime| {
            runtime.error_message.as_deref() == Some("box_unavailable")
        })
        .await;
    assert_eq!(
        refused.hint.as_deref(),
        Some("no user namespaces: turn them on")
    );
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(house.runtime.created.load(Ordering::Relaxed), 0);
    assert_eq!(house.runtime_of(&time).retry_count, 0);
    house.runtime.stands(Standing::Ready);
    house.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_door_refuses_is_not_tried_again() {
    let house = House::new();
    house.runtime.refuses(Some(BoxesError {
        code: ErrorCode::Forbidden,
        message: "the profile has no network".to_owned(),
        hint: Some("choose another profile".to_owned()),
        reached: true,
    }));
    let time = house.add(json!({"name": "time", "command": "well"})).await;
    let refused = house.until_status(&time, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::SessionCreate));
    assert_eq!(
        refused.error_message.as_deref(),
        Some("the profile has no network")
    );
    assert_eq!(refused.hint.as_deref(), Some("choose another profile"));
    assert_eq!(refused.retry_count, 1);
    // An edit may have mended it.
    house.runtime.refuses(None);
    let edit = serde_json::from_value(json!({"box": {"profile": "online"}})).expect("an edit");
    house.hosting.edit(&time, edit).await.expect("edited");
    house.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn whether_a_directory_exists_is_not_told_where_it_could_not_be_mounted() {
    let house = House::new();
    let words = "host_path is outside allowed_mount_roots";
    house.runtime.refuses(Some(BoxesError {
        code: ErrorCode::Forbidden,
        message: words.to_owned(),
        hint: None,
        reached: true,
    }));
    let (there, missing) = (
        house.dir.path().to_owned(),
        house.dir.path().join("missing"),
    );
    for (name, path) in [("there", there), ("missing", missing)] {
        let spec = json!({"name": name, "command": "well", "box": {"host_path": path}});
        let server = house.add(spec).await;
        let refused = house.until_status(&server, McpStatus::Error).await;
        assert_eq!(refused.error_phase, Some(McpPhase::SessionCreate));
        assert_eq!(refused.error_message.as_deref(), Some(words), "{name}");
        assert_eq!(refused.hint, None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_leaves_three_pings_unanswered_is_started_anew() {
    let house = House::new();
    let habits = Habits {
        deaf_after: Some(Duration::from_secs(100)),
        ..Habits::default()
    };
    house.knows("deafens", habits);
    let deafens = house
        .add(json!({"name": "deafens", "command": "deafens"}))
        .await;
    house.until_status(&deafens, McpStatus::Connected).await;
    let began = Instant::now();
    let broken = house
        .until(&deafens, |runtime| runtime.retry_at.is_some())
        .await;
    let took = began.elapsed().as_secs();
    assert!((160..220).contains(&took), "{took}");
    assert_eq!(broken.error_phase, Some(McpPhase::Runtime));
    let message = broken.error_message.expect("a message");
    assert!(message.contains("3 pings"), "{message}");
    house.until_status(&deafens, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_works_on_a_call_may_leave_pings_unanswered() {
    let house = House::new();
    let busy = house.well("busy").await;
    let process = house
        .runtime
        .process("mcp-busy", "main")
        .expect("a process");
    let arguments = json!({"seconds": 240})
        .as_object()
        .cloned()
        .expect("an object");
    let result = house.hosting.call(&busy, "wait", arguments).await;
    assert!(result.expect("a result").get().contains("waited"));
    assert!(process.is_running());
    assert_eq!(house.runtime_of(&busy).retry_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_somebody_else_is_left_alone() {
    let house = House::new();
    let theirs = boxwood_api::SessionId::new("mcp-theirs").expect("an id");
    let spec = boxwood_api::SpecRequest {
        session_id: Some(theirs.clone()),
        ..boxwood_api::SpecRequest::default()
    };
    house
        .runtime
        .create(spec, Vec::new())
        .await
        .expect("created");
    let shared = house
        .add(json!({"name": "theirs", "command": "well"}))
        .await;
    let refused = house.until_status(&shared, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::SessionCreate));
    assert!(
        refused
            .hint
            .is_some_and(|hint| hint.contains("another name"))
    );
    house
        .hosting
        .remove(&name("theirs"))
        .await
        .expect("removed");
    assert_eq!(house.runtime.names(), ["mcp-theirs"]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_turns_out_to_be_away_is_no_reason_to_retry() {
    let house = House::new();
    house.runtime.refuses(Some(BoxesError {
        code: ErrorCode::BackendUnavailable,
        message: "the engine does not answer".to_owned(),
        hint: None,
        reached: true,
    }));
    let time = house.add(json!({"name": "time", "command": "well"})).await;
    let refused = house.until_status(&time, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::BoxUnavailable));
    assert_eq!(refused.error_message.as_deref(), Some("box_unavailable"));
    assert_eq!(refused.hint.as_deref(), Some("the engine does not answer"));
    assert_eq!(refused.retry_count, 0);
    house.runtime.refuses(None);
    house.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_program_that_the_box_lacks_fails_in_phase_process_start() {
    let house = House::new();
    house.runtime.program("lacking", |_| async {
        Gone {
            exit_code: Some(127),
            why: None,
        }
    });
    let lacking = house
        .add(json!({"name": "lacking", "command": "lacking"}))
        .await;
    let failed = house.until_status(&lacking, McpStatus::Error).await;
    assert_eq!(failed.error_phase, Some(McpPhase::ProcessStart));
    assert_eq!(failed.retry_count, 2);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_ends_before_it_is_taken_hold_of_fails_as_one_that_ends_after() {
    for attach_takes in [Duration::ZERO, Duration::from_secs(1)] {
        let house = House::new();
        *house.runtime.attach_takes.lock().expect("no panic") = attach_takes;
        for (name, exit_code) in [("broken", 3), ("lacking", 127)] {
            house.runtime.program(
                name,
                move |_| async move { Gone::new(Some(exit_code), None) },
            );
        }
        let broken = house.add(json!({"name": "broken", "command": "broken"}));
        let broken = house.until_status(&broken.await, McpStatus::Error).await;
        assert_eq!(broken.error_phase, Some(McpPhase::McpInit));
        let said =
            "Failed after 4 attempts: the server ended with exit code 3 before it had answered";
        assert_eq!(broken.error_message.as_deref(), Some(said));
        let lacking = house.add(json!({"name": "lacking", "command": "lacking"}));
        let lacking = house.until_status(&lacking.await, McpStatus::Error).await;
        assert_eq!(lacking.error_phase, Some(McpPhase::ProcessStart));
    }
}
