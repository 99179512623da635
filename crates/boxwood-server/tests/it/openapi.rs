//! `/openapi.json` and the routes are the same thing.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{Api, answer};

fn described(document: &Value) -> BTreeSet<(String, String)> {
    let mut routes = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("methods").keys() {
            routes.insert((method.to_uppercase(), path.clone()));
        }
    }
    routes
}

#[tokio::test]
async fn every_described_route_exists_and_no_other_method_does() {
    let api = Api::start().await;
    let (status, document) = api.get("/openapi.json").await;
    assert_eq!(status, 200);
    let routes = described(&document);
    let paths: BTreeSet<&String> = routes.iter().map(|(_, path)| path).collect();
    for path in paths {
        let target = path
            .replace("{session_id}", "none")
            .replace("{process_id}", "none")
            .replace("{exec_id}", "1")
            .replace("{name}", "none")
            .replace("{path}", "none");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            // Event streams do not end by themselves.
            if path == "/v1/events" && method == "GET" {
                continue;
            }
            // Other methods there are about the skill called `install`.
            if path == "/v1/skills/install" && method != "POST" {
                continue;
            }
            let method_value = Method::from_bytes(method.as_bytes()).expect("a method");
            let response = api
                .request(method_value, &target)
                .send()
                .await
                .expect("an answer");
            let known = routes.contains(&(method.to_owned(), path.clone()));
            let exists = response.status() != 405;
            assert_eq!(exists, known, "{method} {path}: {}", response.status());
            let text = response.text().await.expect("a body");
            assert!(!text.contains("no such route"), "{method} {path}");
        }
    }
}

/// The other way round: what the documentation promises is in the document.
#[tokio::test]
async fn every_promised_route_is_described() {
    let document: Value = serde_json::from_str(boxwood_server::openapi_json()).expect("JSON");
    let session = "/v1/sessions/{session_id}";
    let skill = "/v1/skills/{name}";
    let server = "/v1/mcp/servers/{name}";
    let process = format!("{session}/managed-process/{{process_id}}");
    let promised = [
        ("GET", "/v1/health".to_owned()),
        ("GET", "/v1/status".to_owned()),
        ("GET", "/v1/profiles".to_owned()),
        ("GET", "/v1/backends".to_owned()),
        ("GET", "/v1/doctor".to_owned()),
        ("GET", "/v1/images".to_owned()),
        ("PUT", "/v1/images/{name}".to_owned()),
        ("DELETE", "/v1/images/{name}".to_owned()),
        ("POST", "/v1/images/{name}/pull".to_owned()),
        ("GET", "/v1/events".to_owned()),
        ("GET", "/v1/agent/tools".to_owned()),
        ("POST", "/v1/agent/tools/{name}".to_owned()),
        ("GET", "/v1/agent/status".to_owned()),
        ("GET", "/v1/agent/errors".to_owned()),
        ("POST", "/v1/agent/guidance".to_owned()),
        ("POST", format!("{session}/files/register_skill")),
        ("GET", "/healthz".to_owned()),
        ("GET", "/readyz".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("GET", "/openapi.json".to_owned()),
        ("GET", "/v1/sessions".to_owned()),
        ("POST", session.to_owned()),
        ("GET", session.to_owned()),
        ("DELETE", session.to_owned()),
        ("POST", format!("{session}/exec")),
        ("POST", format!("{session}/exec/stream")),
        ("GET", format!("{session}/exec/ws")),
        ("GET", format!("{session}/execs")),
        ("GET", format!("{session}/execs/{{exec_id}}")),
        ("DELETE", format!("{session}/execs/{{exec_id}}")),
        ("GET", format!("{session}/execs/{{exec_id}}/ws")),
        ("GET", format!("{session}/execs/{{exec_id}}/stream")),
        ("GET", format!("{session}/processes")),
        ("POST", format!("{session}/managed-process")),
        ("GET", format!("{session}/managed-process")),
        ("DELETE", format!("{session}/managed-process")),
        ("GET", format!("{session}/managed-process/ws")),
        ("POST", process.clone()),
        ("GET", process.clone()),
        ("DELETE", process.clone()),
        ("POST", format!("{process}/signal")),
        ("GET", format!("{process}/logs")),
        ("GET", format!("{process}/ws")),
        ("GET", format!("{session}/files")),
        ("PUT", format!("{session}/files")),
        ("DELETE", format!("{session}/files")),
        ("GET", format!("{session}/files/list")),
        ("GET", format!("{session}/files/stat")),
        ("POST", format!("{session}/files/mkdir")),
        ("POST", format!("{session}/files/move")),
        ("POST", format!("{session}/files/read")),
        ("POST", format!("{session}/files/write")),
        ("POST", format!("{session}/files/edit")),
        ("POST", format!("{session}/files/glob")),
        ("POST", format!("{session}/files/grep")),
        ("GET", "/v1/mcp/servers".to_owned()),
        ("POST", "/v1/mcp/servers".to_owned()),
        ("POST", "/v1/mcp/import".to_owned()),
        ("POST", "/v1/mcp/test".to_owned()),
        ("GET", server.to_owned()),
        ("PUT", server.to_owned()),
        ("PATCH", server.to_owned()),
        ("DELETE", server.to_owned()),
        ("POST", format!("{server}/start")),
        ("POST", format!("{server}/stop")),
        ("POST", format!("{server}/restart")),
        ("POST", format!("{server}/test")),
        ("GET", format!("{server}/logs")),
        ("GET", format!("{server}/progress")),
        ("GET", format!("{server}/tools")),
        ("POST", format!("{server}/tools/{{tool}}")),
        ("GET", "/v1/skills".to_owned()),
        ("POST", "/v1/skills".to_owned()),
        ("POST", "/v1/skills/install".to_owned()),
        ("GET", skill.to_owned()),
        ("PATCH", skill.to_owned()),
        ("DELETE", skill.to_owned()),
        ("GET", format!("{skill}/files")),
        ("GET", format!("{skill}/files/{{path}}")),
        ("PUT", format!("{skill}/files/{{path}}")),
        ("DELETE", format!("{skill}/files/{{path}}")),
        ("POST", format!("{skill}/move")),
        ("GET", format!("{skill}/export")),
    ];
    let promised: BTreeSet<_> = promised
        .into_iter()
        .map(|(method, path)| (method.to_owned(), path))
        .collect();
    assert_eq!(described(&document), promised);
}

#[tokio::test]
async fn the_document_holds_together() {
    let document: Value = serde_json::from_str(boxwood_server::openapi_json()).expect("JSON");
    assert!(
        document["openapi"]
            .as_str()
            .expect("a version")
            .starts_with("3.")
    );
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 30);
    for reference in references {
        let name = reference
            .strip_prefix("#/components/schemas/")
            .unwrap_or_else(|| panic!("{reference}"));
        assert!(schemas.contains_key(name), "{reference} leads nowhere");
    }
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            let parameters = operation["parameters"].to_string();
            for part in path.split('/').filter(|part| part.starts_with('{')) {
                let name = part.trim_matches(['{', '}']);
                assert!(parameters.contains(name), "{method} {path} lacks {name}");
            }
            assert!(
                operation["responses"]
                    .as_object()
                    .is_some_and(|all| !all.is_empty())
            );
        }
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("$ref", Value::String(target)) => references.push(target.clone()),
                    (_, field) => collect(field, references),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

#[tokio::test]
async fn an_unknown_route_points_to_the_document() {
    let api = Api::start().await;
    let (status, body) = answer(api.request(Method::GET, "/v1/nope")).await;
    assert_eq!(status, 404);
    assert_eq!(
        body["error"]["hint"],
        json!("`GET /openapi.json` lists all routes")
    );
}
