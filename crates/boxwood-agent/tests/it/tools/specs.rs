//! What the runtime is asked for on behalf of a conversation.

use std::path::PathBuf;

use boxwood_agent::{AgentSettings, Template};
use boxwood_api::SpecRequest;
use serde_json::{Value, json};

use crate::double::{BoxRequest, Double, call};

async fn spec_of(settings: AgentSettings, arguments: Value, query: Value) -> SpecRequest {
    let boxes = Double::default();
    boxes.add_skill("csv");
    boxes.add_skill("pdf");
    call(&boxes.agent_with(settings), "exec", arguments, query)
        .await
        .expect("it runs");
    boxes.execs().remove(0)
}

fn session(spec: &SpecRequest) -> &str {
    spec.session_id.as_ref().expect("a session").as_str()
}

#[tokio::test]
async fn the_agent_sets_four_fields_and_the_operator_the_rest() {
    let settings = AgentSettings {
        profile: "offline_readonly".to_owned(),
        image: Some("python:3.13".to_owned()),
        default_workspace: Some(PathBuf::from("/srv/box/default")),
        workspace_quota_mb: Some(64),
        backend: "docker".to_owned(),
        ..AgentSettings::default()
    };
    let arguments = json!({
        "command": "make", "workdir": "/workspace/x", "timeout_sec": 7, "env": {"A": "1"},
        "description": "builds it"
    });
    let query = json!({"launcher_type": "group", "launcher_id": "room-1"});
    let spec = spec_of(settings, arguments, query).await;
    let expected = SpecRequest {
        session_id: boxwood_api::SessionId::new("group_room-1").ok(),
        cmd: "make".to_owned(),
        workdir: Some("/workspace/x".to_owned()),
        timeout_sec: Some(7),
        env: [("A".to_owned(), "1".to_owned())].into(),
        profile: Some("offline_readonly".to_owned()),
        image: Some("python:3.13".to_owned()),
        host_path: Some("/srv/box/default".to_owned()),
        workspace_quota_mb: Some(64),
        backend: Some("docker".to_owned()),
        skills: vec!["csv".to_owned(), "pdf".to_owned()],
        ..SpecRequest::default()
    };
    assert_eq!(spec, expected);
}

#[tokio::test]
async fn omitted_arguments_are_left_to_the_runtime() {
    let settings = AgentSettings::default();
    let spec = spec_of(settings, json!({"command": "true"}), json!({})).await;
    assert_eq!(spec.workdir.as_deref(), Some("/workspace"));
    assert_eq!(spec.timeout_sec, None, "the profile's");
    assert!(spec.env.is_empty());
    assert_eq!(
        (spec.image, spec.host_path, spec.backend),
        (None, None, None)
    );
    assert_eq!(
        (spec.network, spec.memory_mb, spec.workspace_quota_mb),
        (None, None, None)
    );
}

#[tokio::test]
async fn an_agent_cannot_set_other_fields_of_the_box() {
    let boxes = Double::default();
    let agent = boxes.agent();
    for field in [
        "network",
        "image",
        "host_path",
        "session_id",
        "memory_mb",
        "extra_mounts",
    ] {
        let arguments = json!({"command": "true", field: "on"});
        let error = call(&agent, "exec", arguments, json!({}))
            .await
            .expect_err("refused");
        assert!(error.message.contains(field), "{}", error.message);
    }
    assert!(boxes.execs().is_empty());
}

#[tokio::test]
async fn a_session_is_named_by_the_forced_template_then_the_pipelines_then_the_usual_one() {
    let query = |template: Option<&str>| {
        let mut query = json!({
            "query_id": 7, "launcher_type": "person", "launcher_id": "test_user", "sender_id": "s"
        });
        if let Some(template) = template {
            query["pipeline"] = json!({"box-session-id-template": template});
        }
        query
    };
    let run = |forced: Option<&str>, template: Option<&str>| {
        let settings = AgentSettings {
            forced_template: forced.map(|text| Template::parse(text).expect("a template")),
            ..AgentSettings::default()
        };
        let query = query(template);
        async { spec_of(settings, json!({"command": "true"}), query).await }
    };
    assert_eq!(session(&run(None, None).await), "person_test_user");
    assert_eq!(session(&run(None, Some("  ")).await), "person_test_user");
    assert_eq!(session(&run(None, Some("{query_id}")).await), "7");
    assert_eq!(
        session(&run(Some("{global}"), Some("{query_id}")).await),
        "global"
    );
}

#[tokio::test]
async fn an_invalid_template_of_a_pipeline_is_reported_and_recorded() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let query = json!({
        "query_id": "q1", "launcher_type": "group", "launcher_id": 9, "sender_id": 4,
        "pipeline": {"box-session-id-template": "{launcher_id"}
    });
    let result = call(&agent, "exec", json!({"command": "true"}), query)
        .await
        .expect("it runs");
    // In a box of its own, never in a wider one.
    assert_eq!(result["session_id"], "group_9_4_unknown");
    let notice = result["notices"][0].as_str().expect("a notice");
    assert!(notice.contains("session-id template"), "{notice}");
    let errors = agent.recent_errors();
    assert_eq!((errors.len(), errors[0].query_id.as_str()), (1, "q1"));
}

#[tokio::test]
async fn an_invalid_template_is_recorded_once_and_reported_in_every_call() {
    let agent = Double::default().agent();
    let broken = ["{launcher_id", "{a.b}", " {launcher_id "];
    for template in broken.iter().cycle().take(9) {
        let query = json!({"pipeline": {"box-session-id-template": template}});
        let result = call(&agent, "exec", json!({"command": "true"}), query)
            .await
            .expect("it runs");
        let notice = result["notices"][0].as_str().expect("a notice");
        assert!(notice.contains("session-id template"), "{notice}");
    }
    let errors = agent.recent_errors();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_ne!(errors[0].message, errors[1].message);
}

#[tokio::test]
async fn a_pipeline_binds_skills_and_a_box_takes_sixty_four() {
    let boxes = Double::default();
    for number in 0..70 {
        boxes.add_skill(&format!("s{number:02}"));
    }
    let agent = boxes.agent();
    let run = async |variables: Value| {
        let query = json!({"variables": variables});
        call(&agent, "exec", json!({"command": "true"}), query)
            .await
            .expect("it runs")
    };
    let result = run(json!({"_pipeline_bound_skills": ["s03", "none"]})).await;
    assert!(!result.contains_key("notices"));
    let result = run(json!({"_activated_skills": ["s69", "gone"]})).await;
    assert!(
        result["notices"][0]
            .as_str()
            .expect("a notice")
            .contains("6 more")
    );
    run(json!({"_pipeline_bound_skills": []})).await;

    let specs = boxes.execs();
    assert_eq!(specs[0].skills, ["s03"]);
    assert_eq!(specs[1].skills.len(), 64);
    assert_eq!(specs[1].skills[0], "s69");
    assert!(specs[2].skills.is_empty());
}

#[tokio::test]
async fn file_tools_have_the_box_made_with_the_same_spec() {
    let boxes = Double::default();
    boxes.add_skill("csv");
    let agent = boxes.agent();
    call(&agent, "exec", json!({"command": "true"}), json!({}))
        .await
        .expect("it runs");
    call(&agent, "glob", json!({"pattern": "*"}), json!({}))
        .await
        .expect("it looks");
    let opened = boxes
        .requests()
        .into_iter()
        .find_map(|request| match request {
            BoxRequest::Open(spec) => Some(*spec),
            _ => None,
        });
    let mut exec = boxes.execs().remove(0);
    exec.cmd.clear();
    (exec.workdir, exec.timeout_sec) = (None, None);
    assert_eq!(opened, Some(exec));
}
