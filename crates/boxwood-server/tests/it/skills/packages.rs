//! Skills: what there is, and making, changing and removing one.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::{Api, answer, refused};

pub(crate) const SKILLS: &str = "/v1/skills";

pub(crate) async fn with_skill(name: &str) -> Api {
    let api = Api::start().await;
    create(&api, name).await;
    api
}

pub(crate) async fn create(api: &Api, name: &str) {
    let body = json!({"name": name, "description": "Reads files", "instructions": "Read them."});
    let (status, skill) = api.post(SKILLS, &body).await;
    assert_eq!(status, 201, "{skill}");
}

pub(crate) async fn names(api: &Api) -> Vec<String> {
    let (status, list) = api.get(SKILLS).await;
    assert_eq!(status, 200, "{list}");
    let mut names: Vec<String> = list["skills"]
        .as_array()
        .expect("skills")
        .iter()
        .map(|skill| skill["name"].as_str().expect("a name").to_owned())
        .collect();
    names.sort();
    names
}

async fn patch(api: &Api, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = api
        .request(Method::PATCH, path)
        .header("content-type", "application/json")
        .body(body.to_string());
    answer(request).await
}

#[tokio::test]
async fn a_skill_is_created_read_updated_and_deleted() {
    let api = Api::start().await;
    let (status, list) = api.get(SKILLS).await;
    assert_eq!(
        (status.as_u16(), list),
        (200, json!({"skills": [], "problems": []}))
    );
    let body = json!({
        "name": "pdf",
        "display_name": "PDF files",
        "description": "Reads PDF files",
        "instructions": "Use scripts/read.py.\n",
    });
    let (status, made) = api.post(SKILLS, &body).await;
    assert_eq!(status, 201, "{made}");
    let (status, read) = api.get("/v1/skills/pdf").await;
    assert_eq!(status, 200, "{read}");
    for skill in [&made, &read] {
        assert_eq!(skill["name"], "pdf");
        assert_eq!(skill["display_name"], "PDF files");
        assert_eq!(skill["description"], "Reads PDF files");
        assert_eq!(skill["instructions"], "Use scripts/read.py.\n");
        assert_eq!(skill["entry_file"], "SKILL.md");
        let updated = skill["updated_at"].as_str().expect("a time");
        assert!(updated.ends_with('Z'), "{updated}");
    }

    let change = json!({"description": "Reads and writes PDF files"});
    let (status, changed) = patch(&api, "/v1/skills/pdf", &change).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(changed["description"], "Reads and writes PDF files");
    assert_eq!(changed["instructions"], "Use scripts/read.py.\n", "kept");

    let (status, list) = api.get(SKILLS).await;
    assert_eq!(status, 200);
    assert_eq!(
        list["skills"][0]["description"],
        "Reads and writes PDF files"
    );
    assert!(
        list["skills"][0].get("instructions").is_none(),
        "a list is short"
    );

    let (status, deleted) = api.delete("/v1/skills/pdf").await;
    assert_eq!((status.as_u16(), deleted), (200, json!({"deleted": "pdf"})));
    assert!(names(&api).await.is_empty());
    assert!(!api.daemon.state_dir().join("skills/pdf").exists());
}

#[tokio::test]
async fn deviations_from_the_specification_are_warnings() {
    let api = Api::start().await;
    let (status, skill) = api.post(SKILLS, &json!({"name": "My_Skill"})).await;
    assert_eq!(status, 201, "{skill}");
    let warnings = skill["warnings"].as_array().expect("warnings");
    let codes: Vec<_> = warnings.iter().map(|warning| &warning["code"]).collect();
    assert!(codes.contains(&&json!("name_characters")), "{codes:?}");
    assert!(codes.contains(&&json!("description_missing")), "{codes:?}");
    let (_, list) = api.get(SKILLS).await;
    assert_eq!(list["skills"][0]["warnings"], skill["warnings"]);
}

#[tokio::test]
async fn bodies_are_strict() {
    let api = with_skill("pdf").await;
    for body in [
        json!({}),
        json!({"name": ""}),
        json!({"name": "a b"}),
        json!({"name": "../x"}),
        json!({"name": "x".repeat(65)}),
        json!({"name": 7}),
        json!({"name": "x", "nmae": "y"}),
        // A directory of the host is not for callers of this route.
        json!({"name": "x", "package_root": "/etc"}),
    ] {
        refused(&api.post(SKILLS, &body).await, 400, "validation_error");
    }
    refused(&api.post_text(SKILLS, "[]").await, 400, "validation_error");
    for body in [json!({"name": "other"}), json!({"package_root": "/etc"})] {
        refused(
            &patch(&api, "/v1/skills/pdf", &body).await,
            400,
            "validation_error",
        );
    }
    assert_eq!(names(&api).await, ["pdf"]);
}

#[tokio::test]
async fn a_name_can_be_used_only_once() {
    let api = with_skill("pdf").await;
    let duplicate = api.post(SKILLS, &json!({"name": "pdf"})).await;
    refused(&duplicate, 409, "validation_error");
    let (_, skill) = api.get("/v1/skills/pdf").await;
    assert_eq!(skill["description"], "Reads files", "the first one stays");
}

#[tokio::test]
async fn unknown_skills_are_not_found_on_every_route() {
    let api = with_skill("pdf").await;
    let canary = api.daemon.state_dir().join("canary");
    std::fs::write(&canary, "alive").expect("written");
    for name in [
        "nope",
        "..%2F..%2Fcanary",
        "%2E%2E%2Fx",
        "%00",
        "pdf%2F..",
        "PDF",
    ] {
        let skill = format!("{SKILLS}/{name}");
        refused(&api.get(&skill).await, 404, "not_found");
        refused(&api.delete(&skill).await, 404, "not_found");
        let change = json!({"description": "x"});
        refused(&patch(&api, &skill, &change).await, 404, "not_found");
        refused(&api.get(&format!("{skill}/files")).await, 404, "not_found");
        refused(
            &api.get(&format!("{skill}/files/SKILL.md")).await,
            404,
            "not_found",
        );
        refused(
            &api.delete(&format!("{skill}/files/a")).await,
            404,
            "not_found",
        );
        let put = api
            .request(Method::PUT, &format!("{skill}/files/a"))
            .body("x");
        refused(&answer(put).await, 404, "not_found");
        let body = json!({"from": "a", "to": "b"});
        refused(
            &api.post(&format!("{skill}/move"), &body).await,
            404,
            "not_found",
        );
        refused(&api.get(&format!("{skill}/export")).await, 404, "not_found");
    }
    let (_, body) = api.get("/v1/skills/nope").await;
    assert_eq!(body["error"]["message"], "Skill \"nope\" not found");
    assert_eq!(body["error"]["hint"], "`GET /v1/skills` lists the skills");
    assert_eq!(std::fs::read_to_string(canary).expect("kept"), "alive");
}

/// `/v1/skills/install` is a route of its own, and a good name for a skill.
#[tokio::test]
async fn a_skill_may_be_called_install() {
    let api = with_skill("install").await;
    let (status, skill) = api.get("/v1/skills/install").await;
    assert_eq!((status.as_u16(), &skill["name"]), (200, &json!("install")));
    let (status, skill) = patch(
        &api,
        "/v1/skills/install",
        &json!({"description": "changed"}),
    )
    .await;
    assert_eq!(
        (status.as_u16(), &skill["description"]),
        (200, &json!("changed"))
    );
    let (status, list) = api.get("/v1/skills/install/files").await;
    assert_eq!(status, 200, "{list}");
    let (status, _) = api.delete("/v1/skills/install").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn unreadable_packages_are_listed_as_problems() {
    let api = with_skill("pdf").await;
    let broken = api.daemon.state_dir().join("skills/broken");
    std::fs::create_dir_all(&broken).expect("a directory");
    std::fs::write(broken.join("SKILL.md"), "---\nname: [\n---\n").expect("written");
    let (status, list) = api.get(SKILLS).await;
    assert_eq!(status, 200, "{list}");
    assert_eq!(list["skills"][0]["name"], "pdf");
    assert_eq!(list["problems"][0]["path"], "broken", "{list}");
    assert!(
        !list["problems"][0]["message"]
            .as_str()
            .expect("words")
            .is_empty()
    );
}

#[tokio::test]
async fn responses_do_not_contain_the_path_of_the_store() {
    let api = with_skill("pdf").await;
    let state_dir = api.daemon.state_dir().display().to_string();
    let broken = api.daemon.state_dir().join("skills/broken");
    std::fs::create_dir_all(&broken).expect("a directory");
    std::fs::write(broken.join("SKILL.md"), b"\xff\xfe").expect("written");
    let mut responses = String::new();
    for path in [
        SKILLS,
        "/v1/skills/pdf",
        "/v1/skills/pdf/files",
        "/v1/skills/x",
    ] {
        responses += &api.get(path).await.1.to_string();
    }
    responses += &api
        .post(SKILLS, &json!({"name": "pdf"}))
        .await
        .1
        .to_string();
    responses += &api
        .post(SKILLS, &json!({"name": "broken"}))
        .await
        .1
        .to_string();
    assert!(!responses.contains(&state_dir), "{responses}");
    assert!(!responses.contains("skills/"), "{responses}");
}

#[tokio::test]
async fn skill_routes_require_authentication() {
    let api = with_skill("pdf").await;
    for (method, path) in [
        (Method::GET, SKILLS),
        (Method::DELETE, "/v1/skills/pdf"),
        (Method::POST, "/v1/skills/install"),
    ] {
        let request = api
            .request(method, path)
            .header("origin", "http://evil.example");
        refused(&answer(request).await, 403, "forbidden");
    }
    let stranger = api
        .request(Method::GET, SKILLS)
        .header("authorization", "Bearer bxw_wrong");
    refused(&answer(stranger).await, 401, "unauthorized");
    assert_eq!(names(&api).await, ["pdf"]);
}

#[tokio::test]
async fn an_error_names_the_missing_skill() {
    let api = with_skill("pdf").await;
    let (status, session) = api
        .post("/v1/sessions/s", &json!({"skills": ["pdf"]}))
        .await;
    assert_eq!(status, 201, "{session}");
    let missing = api
        .post("/v1/sessions/t", &json!({"skills": ["pdf", "nope"]}))
        .await;
    assert!(missing.0.is_client_error(), "{missing:?}");
    let message = missing.1["error"]["message"].as_str().expect("words");
    assert!(message.contains("nope"), "{message}");
}
