//! Skills: visibility, activation, registration.

use boxwood_agent::Agent;
use boxwood_api::{AgentQuery, CreateSkillRequest, ErrorCode};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::double::{BoxRequest, Double, call, failure};

fn with_skills() -> (Double, Agent) {
    let boxes = Double::default();
    boxes.add_skill("csv");
    boxes.add_skill("pdf");
    let agent = boxes.agent();
    (boxes, agent)
}

async fn refused(agent: &Agent, tool: &str, arguments: Value, query: Value) -> String {
    let error = call(agent, tool, arguments, query)
        .await
        .expect_err("it must be refused");
    assert_eq!(error.code, ErrorCode::ValidationError);
    error.message
}

fn bound(names: &[&str]) -> Value {
    json!({"query_id": 1, "variables": {"_pipeline_bound_skills": names}})
}

#[tokio::test]
async fn activate_gives_the_instructions_and_the_place() {
    let (_, agent) = with_skills();
    let result = call(&agent, "activate", json!({"skill_name": "csv"}), json!({}))
        .await
        .expect("activated");
    assert_eq!(result["activated"], true);
    assert_eq!(result["skill_name"], "csv");
    assert_eq!(result["mount_path"], "/workspace/.skills/csv");
    let content = result["content"].as_str().expect("text");
    assert!(content.contains("/workspace/.skills/csv"));
    assert!(content.ends_with("# The csv\n\nHow to use csv."));
}

#[tokio::test]
async fn a_skill_that_the_pipeline_does_not_show_cannot_be_activated() {
    let (boxes, agent) = with_skills();
    let hidden = refused(
        &agent,
        "activate",
        json!({"skill_name": "csv"}),
        bound(&["pdf"]),
    )
    .await;
    assert_eq!(hidden, "Skill \"csv\" not found. Available skills: pdf");
    // The same words as for one that does not exist.
    let missing = refused(
        &agent,
        "activate",
        json!({"skill_name": "zip"}),
        bound(&["pdf"]),
    )
    .await;
    assert_eq!(missing, "Skill \"zip\" not found. Available skills: pdf");
    assert!(
        !boxes
            .requests()
            .contains(&BoxRequest::Skill("csv".to_owned()))
    );
    let unnamed = refused(&agent, "activate", json!({}), json!({})).await;
    assert_eq!(unnamed, "skill_name is required");
    let blank = refused(&agent, "activate", json!({"skill_name": " "}), json!({})).await;
    assert_eq!(blank, "skill_name is required");
}

#[tokio::test]
async fn a_command_in_a_package_needs_its_skill_to_be_active() {
    let (boxes, agent) = with_skills();
    let in_text = json!({"command": "python /workspace/.skills/csv/run.py"});
    let by_workdir = json!({"command": "ls", "workdir": "/workspace/.skills/csv"});
    let query = json!({"query_id": 1});
    assert_eq!(
        refused(&agent, "exec", in_text.clone(), query.clone()).await,
        "Skill \"csv\" must be activated before exec can run in its package."
    );
    assert_eq!(
        refused(&agent, "exec", by_workdir.clone(), query.clone()).await,
        "Skill \"csv\" is not available at this path. Activated skills: none. Visible skills: csv, pdf"
    );
    call(
        &agent,
        "activate",
        json!({"skill_name": "csv"}),
        query.clone(),
    )
    .await
    .expect("activated");
    for arguments in [in_text.clone(), by_workdir] {
        call(&agent, "exec", arguments, query.clone())
            .await
            .expect("it runs");
    }
    // Another query starts anew; the platform can carry it over.
    refused(&agent, "exec", in_text.clone(), json!({"query_id": 2})).await;
    let carried = json!({"query_id": 2, "variables": {"_activated_skills": ["csv"]}});
    call(&agent, "exec", in_text, carried)
        .await
        .expect("it runs");
    assert_eq!(boxes.execs().len(), 3);
}

#[tokio::test]
async fn a_command_uses_one_skill_at_most() {
    let (_, agent) = with_skills();
    let query = json!({"variables": {"_activated_skills": ["csv", "pdf"]}});
    let both = "cat /workspace/.skills/csv/a /workspace/.skills/pdf/b";
    assert_eq!(
        refused(&agent, "exec", json!({"command": both}), query.clone()).await,
        "exec can target at most one activated skill package per call."
    );
    let other = json!({
        "command": "cat /workspace/.skills/pdf/b", "workdir": "/workspace/.skills/csv/sub"
    });
    assert_eq!(
        refused(&agent, "exec", other, query).await,
        "exec can reference files from only one activated skill package per call."
    );
}

#[tokio::test]
async fn a_python_skill_runs_in_an_environment_of_its_own() {
    let (boxes, agent) = with_skills();
    let manifest = "/workspace/.skills/csv/requirements.txt".to_owned();
    boxes.world().files.insert(manifest, b"six\n".to_vec());
    let query = json!({"variables": {"_activated_skills": ["csv", "pdf"]}});
    let run = async |skill: &str| {
        let workdir = format!("/workspace/.skills/{skill}");
        let arguments = json!({"command": "python main.py", "workdir": workdir});
        call(&agent, "exec", arguments, query.clone())
            .await
            .expect("it runs");
        boxes.execs().pop().expect("a command").cmd
    };
    let wrapped = run("csv").await;
    assert!(wrapped.contains("/workspace/.skills/csv"));
    assert!(wrapped.contains("venv"));
    assert!(wrapped.ends_with("python main.py"));
    assert_eq!(run("pdf").await, "python main.py");
    // A command that leaves the package alone is left alone.
    call(
        &agent,
        "exec",
        json!({"command": "python main.py"}),
        query.clone(),
    )
    .await
    .expect("it runs");
    assert_eq!(
        boxes.execs().pop().expect("a command").cmd,
        "python main.py"
    );
}

#[tokio::test]
async fn visible_skills_are_read_and_activated_ones_are_changed() {
    let (boxes, agent) = with_skills();
    let file = "/workspace/.skills/csv/notes.md";
    boxes
        .world()
        .files
        .insert(file.to_owned(), b"in the box".to_vec());
    let visible = bound(&["csv"]);
    let read = call(&agent, "read", json!({"path": file}), visible.clone())
        .await
        .expect("visible");
    assert_eq!(read["content"], "in the box");
    let hidden = refused(&agent, "read", json!({"path": file}), bound(&[])).await;
    assert_eq!(
        hidden,
        "Skill \"csv\" is not available at this path. Activated skills: none. Visible skills: none"
    );
    let write = json!({"path": file, "content": "new words\n"});
    let refusal = refused(&agent, "write", write.clone(), visible.clone()).await;
    assert!(refusal.starts_with("Skill \"csv\" is not available at this path."));

    call(
        &agent,
        "activate",
        json!({"skill_name": "csv"}),
        visible.clone(),
    )
    .await
    .expect("activated");
    let written = call(&agent, "write", write, visible.clone())
        .await
        .expect("written");
    assert_eq!(
        (&written["ok"], &written["path"]),
        (&json!(true), &json!(file))
    );
    let key = ("csv".to_owned(), "notes.md".to_owned());
    assert_eq!(boxes.world().skill_files[&key], Bytes::from("new words\n"));

    let edit = json!({"path": file, "old_string": "new", "new_string": "other"});
    let edited = call(&agent, "edit", edit, visible.clone())
        .await
        .expect("edited");
    assert_eq!(
        (&edited["replaced"], &edited["size"]),
        (&json!(1), &json!(12))
    );
    let diff = edited["diff"].as_str().expect("text");
    assert!(
        diff.ends_with("@@ -1 +1 @@\n-new words\n+other words\n"),
        "{diff}"
    );
    assert_eq!(
        boxes.world().skill_files[&key],
        Bytes::from("other words\n")
    );
    let absent = json!({"path": file, "old_string": "new", "new_string": "other"});
    let result = call(&agent, "edit", absent, visible.clone())
        .await
        .expect("a result");
    assert_eq!(result["error"], "old_string not found in file.");
    // No box has to run for what is changed in the store.
    let written_in_box =
        |request: &BoxRequest| matches!(request, BoxRequest::Write(_) | BoxRequest::Edit(_));
    assert!(!boxes.requests().iter().any(written_in_box));
    let package = json!({"path": "/workspace/.skills/csv", "content": ""});
    refused(&agent, "write", package, visible).await;
}

#[tokio::test]
async fn a_removed_or_hidden_skill_is_no_longer_active() {
    let (boxes, agent) = with_skills();
    let run = json!({"command": "ls /workspace/.skills/csv"});
    call(
        &agent,
        "activate",
        json!({"skill_name": "csv"}),
        bound(&["csv"]),
    )
    .await
    .expect("activated");
    call(&agent, "exec", run.clone(), bound(&["csv"]))
        .await
        .expect("it runs");
    refused(&agent, "exec", run.clone(), bound(&["pdf"])).await;
    boxes.world().skills.remove("csv");
    refused(&agent, "exec", run, bound(&["csv"])).await;
}

#[tokio::test]
async fn a_directory_of_the_workspace_becomes_a_skill() {
    let (boxes, agent) = with_skills();
    let result = call(
        &agent,
        "register_skill",
        json!({"path": "/workspace/new/"}),
        json!({}),
    )
    .await
    .expect("registered");
    assert_eq!(result["registered"], true);
    assert_eq!(
        (&result["skill_name"], &result["source_path"]),
        (&json!("made"), &json!("/workspace/new"))
    );
    assert_eq!(result["skill"]["instructions"], "How to use made.");
    let request =
        BoxRequest::RegisterSkill("/workspace/new".to_owned(), CreateSkillRequest::default());
    assert!(boxes.requests().contains(&request));
    let outside = refused(&agent, "register_skill", json!({"path": "/etc"}), json!({})).await;
    assert_eq!(outside, "path must be under /workspace");
    let escape = json!({"path": "/workspace/../etc"});
    let escaped = refused(&agent, "register_skill", escape, json!({})).await;
    assert_eq!(escaped, "path escapes the workspace boundary");
}

#[tokio::test]
async fn guidance_lists_what_the_conversation_may_see() {
    let (_, agent) = with_skills();
    let query: AgentQuery = serde_json::from_value(bound(&["pdf"])).expect("a query");
    let guidance = agent.guidance(&query).await;
    assert_eq!(
        guidance.skills.into_iter().collect::<Vec<_>>(),
        [("pdf".to_owned(), "about pdf".to_owned())]
    );
    assert!(guidance.text.contains("exec") && guidance.text.contains("pdf"));
    assert!(!guidance.text.contains("csv"));
}

#[tokio::test]
async fn a_store_that_cannot_be_listed_stops_only_what_needs_it() {
    let (boxes, agent) = with_skills();
    let broken = failure(ErrorCode::InternalError, "the store cannot be read");
    boxes.world().failing.insert("skills", broken);
    let result = call(&agent, "exec", json!({"command": "x"}), json!({}))
        .await
        .expect("it runs");
    assert_eq!(
        result["notices"],
        json!(["skills are not available: the store cannot be read"])
    );
    refused(&agent, "activate", json!({"skill_name": "csv"}), json!({})).await;
}
