//! Disabled, unavailable and unusable are distinct states, and every API reports the same one.

use boxwood_agent::{Agent, AgentSettings, ToolError};
use boxwood_api::{AgentQuery, AgentState, ErrorCode};
use serde_json::json;

use crate::double::{Double, call, failure, report, unreached};

const DISABLED: &str = "Box runtime is disabled in config (box.enabled = false)";

const CALLS: [(&str, &str); 8] = [
    ("exec", r#"{"command": "true"}"#),
    ("read", r#"{"path": "/workspace/a"}"#),
    ("write", r#"{"path": "/workspace/a", "content": "x"}"#),
    (
        "edit",
        r#"{"path": "/workspace/a", "old_string": "x", "new_string": "y"}"#,
    ),
    ("glob", r#"{"pattern": "*"}"#),
    ("grep", r#"{"pattern": "x"}"#),
    ("activate", r#"{"skill_name": "csv"}"#),
    ("register_skill", r#"{"path": "/workspace/csv"}"#),
];

/// Every tool refuses, and the same way.
async fn refusals(agent: &Agent) -> ToolError {
    let mut first: Option<ToolError> = None;
    for (tool, arguments) in CALLS {
        let arguments = serde_json::from_str(arguments).expect("arguments");
        let error = call(agent, tool, arguments, json!({}))
            .await
            .expect_err("no tool may work");
        let first = first.get_or_insert_with(|| error.clone());
        assert_eq!(*first, error, "{tool}");
    }
    first.expect("there are tools")
}

#[tokio::test]
async fn a_disabled_agent_sends_no_requests() {
    let boxes = Double::default();
    let settings = AgentSettings {
        enabled: false,
        ..AgentSettings::default()
    };
    for agent in [
        boxes.agent_with(settings.clone()),
        Agent::disabled(AgentSettings::default()),
    ] {
        let refusal = refusals(&agent).await;
        assert_eq!(refusal.state, Some(AgentState::Disabled));
        assert_eq!(refusal.message, DISABLED);
        assert!(refusal.hint.expect("a fix").contains("box.enabled = true"));

        let status = agent.status().await;
        assert!(!status.available && !status.enabled);
        assert_eq!(status.state, AgentState::Disabled);
        assert_eq!(status.connector_error, DISABLED);
        assert!(status.fix.is_some() && status.runtime.is_none());

        let tools = agent.tools().await;
        assert!(tools.tools.is_empty() && tools.openai.is_empty());
        assert_eq!(tools.unavailable.expect("why").reason, DISABLED);

        assert!(agent.sessions().await.is_empty());
        assert_eq!(agent.guidance(&AgentQuery::default()).await.text, "");
        assert!(agent.boxes().is_none());
        // A disabled agent is not an error.
        assert!(agent.recent_errors().is_empty());
    }
    assert!(boxes.requests().is_empty());
}

#[tokio::test]
async fn an_unreachable_runtime_is_distinguished_from_a_disabled_one() {
    let boxes = Double::default();
    for method in ["status", "sessions", "skills"] {
        let away = unreached("Disconnected from Box runtime");
        boxes.world().failing.insert(method, away);
    }
    let agent = boxes.agent();
    let refusal = refusals(&agent).await;
    assert_eq!(refusal.state, Some(AgentState::Unavailable));
    assert_eq!(refusal.code, ErrorCode::BackendUnavailable);
    assert_eq!(
        refusal.message,
        "Box runtime is not available: Disconnected from Box runtime"
    );
    assert!(refusal.hint.is_some());

    let status = agent.status().await;
    assert!(!status.available && status.enabled);
    assert_eq!(status.state, AgentState::Unavailable);
    assert_eq!(status.connector_error, refusal.message);
    let why = agent.tools().await.unavailable.expect("why");
    assert_eq!(why.state, AgentState::Unavailable);
    assert!(agent.sessions().await.is_empty());
    assert!(agent.recent_errors().is_empty());
}

#[tokio::test]
async fn the_survey_of_backends_is_not_awaited_if_the_backend_works() {
    let boxes = Double::default();
    {
        let mut world = boxes.world();
        world.backend = Some("native".to_owned());
        let hangs = failure(ErrorCode::BackendUnavailable, "docker does not answer");
        world.failing.insert("backends", hangs);
    }
    let status = boxes.agent().status().await;
    assert!(status.available, "{status:?}");
}

#[tokio::test]
async fn a_backend_that_is_dead_keeps_the_runtimes_own_status() {
    let boxes = Double::default();
    {
        let mut world = boxes.world();
        world.backend = Some("nsjail".to_owned());
        world.unusable = true;
        world.backends = vec![report("nsjail", false)];
        let dead = failure(ErrorCode::BackendUnavailable, "nsjail: not found");
        world.failing.insert("get_or_create", dead.clone());
        world.failing.insert("exec", dead.clone());
        world.failing.insert("skill", dead);
    }
    boxes.add_skill("csv");
    let agent = boxes.agent();
    let refusal = refusals(&agent).await;
    assert_eq!(refusal.state, Some(AgentState::BackendUnusable));
    assert_eq!(
        refusal.message,
        "Configured sandbox backend \"nsjail\" is unavailable"
    );
    assert_eq!(
        refusal.hint.as_deref(),
        Some("nsjail is not installed: install nsjail")
    );
    let status = agent.status().await;
    assert!(!status.available && status.enabled);
    assert_eq!(status.state, AgentState::BackendUnusable);
    assert_eq!(status.connector_error, refusal.message);
    let runtime = status.runtime.expect("it answered");
    assert_eq!(runtime.backend.name.as_deref(), Some("nsjail"));
    // It needs a fix, so it is recorded.
    assert_eq!(agent.recent_errors().len(), 8);
    assert_eq!(status.recent_error_count, 8);
}

#[tokio::test]
async fn without_a_backend_the_fix_lists_what_each_one_needs() {
    let boxes = Double::default();
    {
        let mut world = boxes.world();
        world.unusable = true;
        world.backends = vec![report("native", false), report("docker", false)];
    }
    let status = boxes.agent().status().await;
    assert!(
        status
            .connector_error
            .starts_with("No supported sandbox backend")
    );
    assert_eq!(
        status.fix.as_deref(),
        Some(
            "native: native is not installed: install native; docker: docker is not installed: \
             install docker"
        )
    );
}

#[tokio::test]
async fn the_backend_that_the_settings_name_is_the_one_that_counts() {
    let boxes = Double::default();
    {
        let mut world = boxes.world();
        world.backend = Some("native".to_owned());
        world.backends = vec![report("native", true), report("docker", false)];
    }
    let named = |backend: &str| {
        boxes.agent_with(AgentSettings {
            backend: backend.to_owned(),
            ..AgentSettings::default()
        })
    };
    assert!(named("local").status().await.available);
    assert!(named("native").status().await.available);
    for other in ["docker", "firecracker"] {
        let status = named(other).status().await;
        assert_eq!(status.state, AgentState::BackendUnusable);
        let expected = format!("Configured sandbox backend \"{other}\" is unavailable");
        assert_eq!(status.connector_error, expected);
    }
}

#[tokio::test]
async fn a_ready_agent_says_so_and_shows_its_tools() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let status = agent.status().await;
    assert!(status.available && status.enabled && status.shares_filesystem);
    assert_eq!(status.state, AgentState::Ready);
    assert_eq!((status.connector_error.as_str(), status.fix), ("", None));
    assert_eq!(status.profile, "default");
    assert_eq!(status.runtime.expect("it answered").active_sessions, 2);
    let tools = agent.tools().await;
    assert_eq!((tools.tools.len(), tools.openai.len()), (8, 8));
    assert!(tools.unavailable.is_none());
    assert_eq!(agent.sessions().await.len(), 1);
}

#[tokio::test]
async fn the_state_is_read_again_for_every_call() {
    let boxes = Double::default();
    let agent = boxes.agent();
    boxes
        .world()
        .failing
        .insert("status", unreached("connection refused"));
    assert!(agent.tools().await.tools.is_empty());
    boxes.world().failing.clear();
    assert_eq!(agent.tools().await.tools.len(), 8);
    assert!(agent.status().await.available);
}
