//! Serves the files of a conversation's workspace as resources.
//!
//! Never creates a box. A conversation without one has no files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use boxwood_agent::{Agent, Boxes, ToolError};
use boxwood_api::{AgentQuery, ErrorCode, GlobRequest, SessionId};
use rmcp::model::{
    ErrorData, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::json;

use super::tool_result::{refusal, refusal_facts};
use super::{mime, uri};

const PAGE_SIZE: usize = 200;
/// Further files are not listed; the `glob` tool finds them.
const MAX_FILES: u64 = 10_000;
/// A resource is inserted into the model's context as a whole.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

pub(crate) async fn list(
    agent: &Agent,
    query: &AgentQuery,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let after = match cursor {
        Some(cursor) => {
            uri::path(cursor).map_err(|_| ErrorData::invalid_params("invalid cursor", None))?
        }
        None => String::new(),
    };
    let agent = &agent.refreshed().await.map_err(|error| refused(&error))?;
    let id = session_id(agent, query)?;
    let request = GlobRequest {
        pattern: "*".to_owned(),
        path: uri::WORKSPACE.to_owned(),
        limit: Some(MAX_FILES),
        ignored: false,
    };
    let paths = match boxes(agent)?.glob(&id, request).await {
        Ok(found) => found.matches,
        Err(error) if error.code == ErrorCode::SessionNotFound => {
            // An empty list would hide that no box can be created.
            match agent.tools().await.unavailable {
                Some(reason) => return Err(refused(&reason.into())),
                None => Vec::new(),
            }
        }
        Err(error) => return Err(refused(&agent.refusal(error).await)),
    };
    let (resources, next_cursor) = page(paths, &after);
    let mut result = ListResourcesResult::with_all_items(resources);
    result.next_cursor = next_cursor;
    Ok(result)
}

/// Sorted by name, so that pages are stable. The cursor is the URI of the last file of the previous page.
fn page(mut paths: Vec<String>, after: &str) -> (Vec<Resource>, Option<String>) {
    paths.retain(|path| path.as_str() > after);
    paths.sort_unstable();
    let mut resources: Vec<Resource> = paths.iter().filter_map(|path| resource(path)).collect();
    let more = resources.len() > PAGE_SIZE;
    resources.truncate(PAGE_SIZE);
    let last = resources.last().filter(|_| more);
    let next = last.map(|resource| resource.uri.clone());
    (resources, next)
}

fn resource(path: &str) -> Option<Resource> {
    let name = path.strip_prefix(uri::WORKSPACE)?.trim_start_matches('/');
    let mut resource = Resource::new(uri::of(path)?, name);
    resource.mime_type = mime::of(path).map(str::to_owned);
    Some(resource)
}

pub(crate) fn templates() -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new(uri::TEMPLATE, "workspace file")
        .with_title("Workspace file")
        .with_description("Any file below /workspace in this conversation's box");
    ListResourceTemplatesResult::with_all_items(vec![template])
}

pub(crate) async fn read(
    agent: &Agent,
    query: &AgentQuery,
    address: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let path = uri::path(address).map_err(|reason| not_found(address, reason))?;
    let agent = &agent.refreshed().await.map_err(|error| refused(&error))?;
    let id = session_id(agent, query)?;
    let bytes = match boxes(agent)?
        .read_bytes(&id, &path, 0, MAX_FILE_BYTES + 1)
        .await
    {
        Ok(bytes) => bytes,
        Err(error) => {
            let absent = [ErrorCode::NotFound, ErrorCode::SessionNotFound];
            return Err(if absent.contains(&error.code) {
                not_found(address, &error.message)
            } else {
                refused(&agent.refusal(error).await)
            });
        }
    };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ErrorData::invalid_params(
            format!(
                "the file is larger than {} MiB; read it in parts with the `read` tool",
                MAX_FILE_BYTES >> 20
            ),
            Some(json!({ "uri": address })),
        ));
    }
    Ok(ReadResourceResult::new(vec![contents(
        address, &path, &bytes,
    )]))
}

/// UTF-8 without NUL is text.
fn contents(address: &str, path: &str, bytes: &[u8]) -> ResourceContents {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => ResourceContents::text(text, address)
            .with_mime_type(mime::of(path).unwrap_or("text/plain")),
        _ => ResourceContents::blob(STANDARD.encode(bytes), address)
            .with_mime_type(mime::of(path).unwrap_or("application/octet-stream")),
    }
}

fn session_id(agent: &Agent, query: &AgentQuery) -> Result<SessionId, ErrorData> {
    agent
        .session_id(query)
        .map_err(|error| ErrorData::invalid_params(error.message, None))
}

fn boxes(agent: &Agent) -> Result<&dyn Boxes, ErrorData> {
    let boxes = agent.boxes().map(AsRef::as_ref);
    boxes.ok_or_else(|| refused(&Agent::disabled_error()))
}

/// The same text as in tool errors.
fn refused(error: &ToolError) -> ErrorData {
    ErrorData::internal_error(refusal(error), Some(refusal_facts(error)))
}

fn not_found(address: &str, reason: &str) -> ErrorData {
    ErrorData::resource_not_found(reason.to_owned(), Some(json!({ "uri": address })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_no_gaps() {
        let paths: Vec<String> = (0..450)
            .map(|n| format!("/workspace/f{n:03}.txt"))
            .collect();
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let (resources, next) = page(paths.iter().rev().cloned().collect(), &after);
            seen.extend(resources.into_iter().map(|resource| resource.name));
            let Some(next) = next else { break };
            after = uri::path(&next).expect("cursor");
        }
        let expected: Vec<String> = (0..450).map(|n| format!("f{n:03}.txt")).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_full_last_page_has_no_next_cursor() {
        let paths: Vec<String> = (0..PAGE_SIZE).map(|n| format!("/workspace/{n}")).collect();
        let (resources, next) = page(paths, "");
        assert_eq!((resources.len(), next), (PAGE_SIZE, None));
    }

    #[test]
    fn skills_are_not_workspace_files() {
        let paths = ["/workspace/.skills/a/SKILL.md", "/workspace/a.png"].map(str::to_owned);
        let (resources, _) = page(paths.to_vec(), "");
        assert_eq!(resources.len(), 1);
        assert_eq!(resources[0].mime_type.as_deref(), Some("image/png"));
    }

    #[test]
    fn binary_files_are_blobs() {
        let of = |bytes: &[u8]| contents("boxwood://workspace/a", "/workspace/a", bytes);
        assert!(matches!(
            of("grüß".as_bytes()),
            ResourceContents::TextResourceContents { .. }
        ));
        for bytes in [&b"\xff\xfe"[..], b"a\0b"] {
            let ResourceContents::BlobResourceContents { blob, .. } = of(bytes) else {
                panic!("not a blob");
            };
            assert_eq!(STANDARD.decode(blob).expect("base64"), bytes);
        }
    }
}
