//! The agent over HTTP: its tools, its states, and which box a conversation gets.

use std::time::{Duration, Instant};

use boxwood_agent::Template;
use boxwood_api::LockableField;
use boxwood_policy::ProfileConfig;
use boxwood_server::Config;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::api::{Api, eventually, refused};

const TOOLS: &str = "/v1/agent/tools";

const NAMES: [&str; 8] = [
    "exec",
    "read",
    "write",
    "edit",
    "glob",
    "grep",
    "activate",
    "register_skill",
];

async fn call(api: &Api, tool: &str, arguments: Value, query: Value) -> (StatusCode, Value) {
    let body = json!({"arguments": arguments, "query": query});
    api.post(&format!("{TOOLS}/{tool}"), &body).await
}

/// A command's result, for a conversation.
async fn exec(api: &Api, command: &str, query: Value) -> Value {
    let (status, answer) = call(api, "exec", json!({"command": command}), query).await;
    assert_eq!(status, 200, "{answer}");
    answer["result"].clone()
}

async fn session_of(api: &Api, query: Value) -> String {
    let result = exec(api, "true", query).await;
    result["session_id"].as_str().expect("an id").to_owned()
}

fn person(id: &str) -> Value {
    json!({"launcher_type": "person", "launcher_id": id})
}

#[tokio::test]
async fn the_tools_are_listed_in_both_forms() {
    let api = Api::start().await;
    let (status, list) = api.get(TOOLS).await;
    assert_eq!(status, 200, "{list}");
    let names: Vec<&str> = list["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, NAMES);
    assert!(list.get("unavailable").is_none(), "{list}");
    for (tool, function) in list["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .zip(list["openai"].as_array().expect("functions"))
    {
        assert_eq!(tool["input_schema"]["type"], "object");
        assert_eq!(tool["input_schema"]["additionalProperties"], false);
        assert_eq!(function["type"], "function");
        assert_eq!(function["function"]["name"], tool["name"]);
        assert_eq!(function["function"]["parameters"], tool["input_schema"]);
    }
}

#[tokio::test]
async fn a_command_answers_with_both_streams_and_its_code() {
    let api = Api::start().await;
    let result = exec(&api, "echo out; echo err >&2; exit 3", person("a")).await;
    assert_eq!(result["ok"], false);
    assert_eq!(result["status"], "completed");
    assert_eq!(result["exit_code"], 3);
    assert_eq!(result["stdout"], "out\n");
    assert_eq!(result["stderr"], "err\n");
    assert_eq!(result["stdout_truncated"], false);
    assert_eq!(result["stderr_truncated"], false);
    assert_eq!(result["backend"], "fake");
    assert!(result["duration_ms"].is_u64(), "{result}");
    let response = api.request(reqwest::Method::GET, "/metrics").send().await;
    let metrics = response.expect("an answer").text().await.expect("text");
    assert!(
        metrics.contains("boxwood_exec_duration_seconds_count 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_conversation_has_one_box() {
    let api = Api::start().await;
    let queries = [
        (person("test_user"), "person_test_user"),
        (person("test_user"), "person_test_user"),
        (
            json!({"launcher_type": "group", "launcher_id": "room-1"}),
            "group_room-1",
        ),
        (json!({"query_id": 7}), "query_7"),
        (
            json!({"launcher_type": "person", "launcher_id": "u", "pipeline": {"box-session-id-template": "{global}"}}),
            "global",
        ),
        (
            json!({"variables": {"conversation_id": "c9"}, "pipeline": {"box-session-id-template": "c_{conversation_id}_{nope}"}}),
            "c_c9_unknown",
        ),
    ];
    for (query, expected) in queries {
        assert_eq!(session_of(&api, query).await, expected);
    }
    assert_eq!(api.backend.starts(), 5, "one start for each of them");
}

#[tokio::test]
async fn nothing_escapes_a_forced_template() {
    let api = Api::start_with(|config: &mut Config| {
        config.agent.forced_template = Some(Template::parse("{global}").expect("a template"));
    })
    .await;
    let own = json!({"launcher_id": "x", "pipeline": {"box-session-id-template": "{launcher_id}"}});
    for query in [person("a"), person("b"), own] {
        assert_eq!(session_of(&api, query).await, "global");
    }
    assert_eq!(api.backend.starts(), 1);
}

#[tokio::test]
async fn a_command_without_a_timeout_has_its_profiles() {
    let quick = |locked: &[LockableField]| ProfileConfig {
        timeout_sec: Some(1),
        locked: Some(locked.to_vec()),
        ..ProfileConfig::default()
    };
    for (profile, arguments) in [
        (quick(&[]), json!({"command": "sleep 60"})),
        (
            quick(&[LockableField::TimeoutSec]),
            json!({"command": "sleep 60", "timeout_sec": 50}),
        ),
    ] {
        let api = Api::start_with(|config: &mut Config| {
            config.policy.profiles.insert("quick".to_owned(), profile);
            config.agent.profile = "quick".to_owned();
        })
        .await;
        let (status, answer) = call(&api, "exec", arguments, person("a")).await;
        assert_eq!(status, 200, "{answer}");
        let result = &answer["result"];
        assert_eq!(
            (&result["status"], &result["reason"]),
            (&json!("timed_out"), &json!("timeout")),
            "{answer}"
        );
        let taken = result["duration_ms"].as_u64().expect("a number");
        assert!(taken < 30_000, "the profile's, not ours: {answer}");
    }
}

#[tokio::test]
async fn a_model_chooses_nothing_but_its_command() {
    let api = Api::start().await;
    for extra in [
        json!({"image": "x"}),
        json!({"network": "on"}),
        json!({"host_path": "/"}),
        json!({"session_id": "other"}),
        json!({"memory_mb": 1}),
        json!({"skills": ["x"]}),
        json!({"timeout_sec": 0}),
        json!({"timeout_sec": "soon"}),
        json!({"env": {"A": 1}}),
        json!({"workdir": 7}),
    ] {
        let mut arguments = json!({"command": "true"});
        for (name, value) in extra.as_object().expect("an object") {
            arguments[name] = value.clone();
        }
        let response = call(&api, "exec", arguments, person("a")).await;
        refused(&response, 400, "validation_error");
        let name = extra.as_object().expect("an object").keys().next();
        let message = response.1["error"]["message"].as_str().expect("a message");
        assert!(message.contains(name.expect("a name")), "{message}");
    }
    assert_eq!(api.backend.starts(), 0, "no box was made");
}

#[tokio::test]
async fn invalid_arguments_are_refused_before_a_box_is_created() {
    let api = Api::start().await;
    let response = call(&api, "exec", json!({}), person("a")).await;
    refused(&response, 400, "validation_error");
    let response = call(&api, "exec", json!({"command": "  "}), person("a")).await;
    refused(&response, 400, "validation_error");
    let response = call(&api, "rm", json!({}), person("a")).await;
    assert!(matches!(response.0.as_u16(), 400 | 404), "{}", response.1);
    for body in [
        json!({"arguments": []}),
        json!({"arguments": {"command": "true"}, "extra": 1}),
        json!({"query": {"launcher": "x"}}),
        json!({"query": {"pipeline": {"other": 1}}}),
    ] {
        let response = api.post(&format!("{TOOLS}/exec"), &body).await;
        refused(&response, 400, "validation_error");
    }
    for path in [
        "/etc/passwd",
        "/workspace/../etc/passwd",
        "relative",
        "/workspacex",
    ] {
        let response = call(&api, "read", json!({"path": path}), person("a")).await;
        refused(&response, 400, "validation_error");
    }
    assert_eq!(api.backend.starts(), 0);
}

#[tokio::test]
async fn an_agent_that_is_off_refuses_everything_the_same_way() {
    let api = Api::start_with(|config| config.agent.enabled = false).await;
    let reason = "Box runtime is disabled in config (box.enabled = false)";
    let (status, list) = api.get(TOOLS).await;
    assert_eq!(status, 200, "{list}");
    assert_eq!(list["tools"], json!([]));
    assert_eq!(list["openai"], json!([]));
    assert_eq!(list["unavailable"]["state"], "disabled");
    assert_eq!(list["unavailable"]["reason"], reason);
    for tool in NAMES {
        let response = call(&api, tool, json!({"path": "/workspace/a"}), person("a")).await;
        refused(&response, 503, "backend_unavailable");
        assert_eq!(response.1["error"]["message"], reason);
        assert_eq!(response.1["error"]["state"], "disabled");
        let hint = response.1["error"]["hint"].as_str().expect("a hint");
        assert!(hint.contains("box.enabled"), "{hint}");
    }
    let (status, agent_status) = api.get("/v1/agent/status").await;
    assert_eq!(status, 200, "{agent_status}");
    assert_eq!(agent_status["available"], false);
    assert_eq!(agent_status["enabled"], false);
    assert_eq!(agent_status["state"], "disabled");
    assert_eq!(agent_status["connector_error"], reason);
    // Everything else goes on.
    let (status, result) = api
        .post("/v1/sessions/s/exec", &json!({"cmd": "echo on"}))
        .await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["stdout"], "on\n");
}

#[tokio::test]
async fn an_unusable_backend_has_its_own_state_until_it_recovers() {
    let api = Api::start().await;
    assert_eq!(session_of(&api, person("a")).await, "person_a");
    api.backend
        .break_down("the engine is gone", "start the engine");
    // The first caller gets the error, and the status reports it afterwards.
    let response = call(&api, "exec", json!({"command": "true"}), person("new")).await;
    refused(&response, 503, "backend_unavailable");
    assert!(response.1["error"]["hint"].is_string(), "{}", response.1);
    let (_, agent_status) = api.get("/v1/agent/status").await;
    assert_eq!(agent_status["available"], false, "{agent_status}");
    assert_eq!(agent_status["enabled"], true);
    let reason = agent_status["connector_error"].as_str().expect("a reason");
    assert!(reason.contains("fake"), "{reason}");
    assert!(
        agent_status["fix"]
            .as_str()
            .expect("a fix")
            .contains("start the engine"),
        "{agent_status}"
    );
    let (_, list) = api.get(TOOLS).await;
    assert_eq!(list["unavailable"]["state"], "backend_unusable", "{list}");
    let response = call(&api, "exec", json!({"command": "true"}), person("new")).await;
    refused(&response, 503, "backend_unavailable");
    assert_eq!(
        response.1["error"]["message"],
        list["unavailable"]["reason"]
    );
    assert_eq!(response.1["error"]["state"], "backend_unusable");

    api.backend.mend();
    // A failed probe is cached for a few seconds.
    let began = Instant::now();
    while api.get("/v1/agent/status").await.1["state"] != "ready" {
        assert!(began.elapsed() < Duration::from_secs(20), "still unusable");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(session_of(&api, person("new")).await, "person_new");
}

#[tokio::test]
async fn failures_are_recorded_with_their_query() {
    let api = Api::start().await;
    api.backend.fail_next_start("no room today");
    let response = call(
        &api,
        "exec",
        json!({"command": "true"}),
        json!({"query_id": 42}),
    )
    .await;
    assert!(response.0.is_server_error(), "{response:?}");
    let (status, errors) = api.get("/v1/agent/errors").await;
    assert_eq!(status, 200, "{errors}");
    let last = errors.as_array().expect("a list").last().expect("one");
    assert_eq!(last["query_id"], "42", "{errors}");
    assert!(last["timestamp"].as_str().expect("a time").ends_with('Z'));
    assert_eq!(last["message"], response.1["error"]["message"]);
    assert_eq!(last["type"], response.1["error"]["code"]);
    let (_, status) = api.get("/v1/agent/status").await;
    assert_eq!(status["recent_error_count"], 1, "{status}");

    for number in 0..60 {
        let query = json!({"query_id": number});
        call(&api, "read", json!({"path": "/etc/passwd"}), query).await;
    }
    let (_, errors) = api.get("/v1/agent/errors").await;
    let errors = errors.as_array().expect("a list");
    assert_eq!(errors.len(), 50);
    assert_eq!(errors[0]["query_id"], "10");
    assert_eq!(errors[49]["query_id"], "59");
}

#[tokio::test]
async fn a_disconnect_kills_the_command() {
    let api = Api::start().await;
    session_of(&api, person("a")).await;
    let body =
        json!({"arguments": {"command": "sleep 1000", "timeout_sec": 100}, "query": person("a")});
    let request = api
        .request(reqwest::Method::POST, &format!("{TOOLS}/exec"))
        .header("content-type", "application/json")
        .timeout(Duration::from_millis(500))
        .body(body.to_string());
    assert!(request.send().await.is_err(), "the client gives up");
    eventually("the command is gone", || async {
        let (_, detail) = api.get("/v1/sessions/person_a").await;
        detail["execs"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
}

#[tokio::test]
async fn a_command_ends_at_its_timeout() {
    let api = Api::start().await;
    let began = Instant::now();
    let arguments = json!({"command": "echo begun; sleep 1000", "timeout_sec": 4});
    let (status, answer) = call(&api, "exec", arguments, person("a")).await;
    assert_eq!(status, 200, "{answer}");
    let result = &answer["result"];
    assert_eq!(result["status"], "timed_out", "{result}");
    assert_eq!(result["ok"], false);
    assert_eq!(result["stdout"], "begun\n", "what it said is not lost");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn the_guidance_names_the_skills_of_the_conversation() {
    let api = Api::start().await;
    for name in ["pdf", "csv"] {
        crate::skills::packages::create(&api, name).await;
    }
    let (status, all) = api.post("/v1/agent/guidance", &json!({})).await;
    assert_eq!(status, 200, "{all}");
    assert!(
        all["text"].as_str().expect("text").contains("exec"),
        "{all}"
    );
    assert_eq!(
        all["skills"],
        json!({"csv": "Reads files", "pdf": "Reads files"})
    );
    let query = json!({"variables": {"_pipeline_bound_skills": ["pdf"]}});
    let (_, bound) = api.post("/v1/agent/guidance", &query).await;
    assert_eq!(bound["skills"], json!({"pdf": "Reads files"}));
}
