//! The resources and the resource template.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceTemplate};
use serde_json::json;

use crate::server::model;
use crate::tools::PICTURE;

pub(crate) fn list() -> Result<Vec<Resource>, ErrorData> {
    let one = |(name, kind): (&str, &str)| {
        model(json!({
            "uri": format!("test://{name}"),
            "name": name,
            "description": "For the conformance suite.",
            "mimeType": kind,
        }))
    };
    let all = [
        ("static-text", "text/plain"),
        ("static-binary", "image/png"),
        ("watched-resource", "text/plain"),
    ];
    all.into_iter().map(one).collect()
}

pub(crate) fn templates() -> Result<Vec<ResourceTemplate>, ErrorData> {
    model(json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "data of an id",
        "description": "For the conformance suite.",
        "mimeType": "application/json",
    }]))
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let text = |kind: &str, text: String| json!({"uri": uri, "mimeType": kind, "text": text});
    let contents = match uri {
        "test://static-text" => {
            let words = "This is the content of the static text resource.";
            text("text/plain", words.to_owned())
        }
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PICTURE}),
        "test://watched-resource" => text("text/plain", "It may change.".to_owned()),
        _ => {
            let id = uri.strip_prefix("test://template/");
            let Some(id) = id.and_then(|rest| rest.strip_suffix("/data")) else {
                let data = json!({"uri": uri});
                return Err(ErrorData::resource_not_found(
                    "Resource not found",
                    Some(data),
                ));
            };
            let data =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            text("application/json", data.to_string())
        }
    };
    model(json!({"resultType": "complete", "contents": [contents]}))
}
