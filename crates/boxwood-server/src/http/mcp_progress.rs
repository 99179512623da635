//! How a server comes along, line by line, and tests in boxes that are not kept.
//!
//! Comes in: a server's name, or the description of one. Goes out: JSON lines until it is connected or
//! has failed, the client has left, or the daemon stops. Never here: what is being done.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use boxwood_api::{ErrorBody, McpProgress, McpServerSpec, McpTestResult};
use boxwood_mcp::HostingError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::App;
use super::error::ApiResult;
use super::json::{self, JsonBody};
use super::mcp_servers::OfServer;

const LINES: &str = "application/x-ndjson";

/// Lines that wait for a slow client. Of a test, what does not fit is left out.
const KEPT_LINES: usize = 64;

#[utoipa::path(get, path = "/v1/mcp/servers/{name}/progress", tag = "mcp", operation_id = "follow_mcp_server",
    params(("name" = String, Path,)),
    responses(
        (status = 200, content_type = "application/x-ndjson", body = McpProgress,
            description = "One JSON object in each line: the steps so far, then the others as they come; `done` is the last"),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn progress(
    State(app): State<Arc<App>>,
    OfServer { name, hosting }: OfServer,
) -> ApiResult<Response> {
    let news = hosting.progress(&name)?;
    Ok(lines(news, app.stopping.clone()))
}

#[utoipa::path(post, path = "/v1/mcp/test", tag = "mcp", operation_id = "test_mcp_server",
    request_body = McpServerSpec,
    responses(
        (status = 200, description = "What was found, once it is known; with `Accept: application/x-ndjson`, or \
            any other but JSON, the way there as lines of `McpProgress`", body = McpTestResult),
        (status = 400, body = ErrorBody, description = "The description makes no sense"),
        (status = 503, body = ErrorBody, description = "This daemon hosts no servers")))]
pub(super) async fn test(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(spec): JsonBody<McpServerSpec>,
) -> ApiResult<Response> {
    let hosting = app.mcp.hosting()?.clone();
    let (tell, news) = mpsc::channel(KEPT_LINES);
    let trial = Trial::begin(async move { hosting.test(spec, tell).await }, news);
    answer(trial, &headers, &app).await
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/test", tag = "mcp", operation_id = "test_stored_mcp_server",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "As for `/v1/mcp/test`, of the server as it is stored, with its secrets; the \
            one that runs is left alone", body = McpTestResult),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn test_stored(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    OfServer { name, hosting }: OfServer,
) -> ApiResult<Response> {
    let hosting = hosting.clone();
    let (tell, news) = mpsc::channel(KEPT_LINES);
    let trial = Trial::begin(async move { hosting.test_stored(&name, tell).await }, news);
    answer(trial, &headers, &app).await
}

/// The trial is dropped with the answer, whoever ends that: its box goes with it.
async fn answer(mut trial: Trial, headers: &HeaderMap, app: &App) -> ApiResult<Response> {
    if wants_result(headers) {
        return Ok(json::ok(&trial.result().await?));
    }
    // What makes no sense is refused before there is anything to tell.
    let first = trial.next().await?;
    let rest = stream::unfold(trial, async |mut trial| {
        let next = trial.next().await.ok().flatten()?;
        Some((next, trial))
    });
    Ok(lines(stream::iter(first).chain(rest), app.stopping.clone()))
}

/// Plain JSON and nothing that could be lines.
fn wants_result(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok()).peekable();
    accepted.peek().is_some()
        && accepted.all(|value| {
            let mut types = value.split(',').map(|part| part.split(';').next());
            types.all(|part| part.unwrap_or_default().trim() == "application/json")
        })
}

/// A test while it goes on, and what it tells. A task of its own: it has a turn that others wait for, so it
/// must not wait for a client that reads nothing. It ends when this is dropped.
struct Trial {
    testing: JoinHandle<Result<McpTestResult, HostingError>>,
    news: mpsc::Receiver<McpProgress>,
    is_done: bool,
}

impl Trial {
    fn begin(
        test: impl Future<Output = Result<McpTestResult, HostingError>> + Send + 'static,
        news: mpsc::Receiver<McpProgress>,
    ) -> Self {
        Self {
            testing: tokio::spawn(test),
            news,
            is_done: false,
        }
    }

    /// What it tells next. The last word is always told, also where it came when nobody listened.
    async fn next(&mut self) -> Result<Option<McpProgress>, HostingError> {
        // Closed with the test, which had the other end.
        if let Some(progress) = self.news.recv().await {
            self.is_done = matches!(progress, McpProgress::Done { .. });
            return Ok(Some(progress));
        }
        if self.is_done {
            return Ok(None);
        }
        self.is_done = true;
        let runtime = Box::new(self.outcome().await?.runtime);
        Ok(Some(McpProgress::Done { runtime }))
    }

    async fn result(&mut self) -> Result<McpTestResult, HostingError> {
        while self.news.recv().await.is_some() {}
        self.outcome().await
    }

    /// Asked for once.
    async fn outcome(&mut self) -> Result<McpTestResult, HostingError> {
        let outcome = (&mut self.testing).await;
        outcome.unwrap_or(Err(HostingError::Closing))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.testing.abort();
    }
}

fn lines(
    news: impl Stream<Item = McpProgress> + Send + 'static,
    mut stopping: watch::Receiver<bool>,
) -> Response {
    let told = async move {
        // An error is a daemon that is gone already.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    let pieces = news
        .map(|progress| Ok::<_, Infallible>(line(&progress)))
        .take_until(Box::pin(told));
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(LINES));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn line(progress: &McpProgress) -> Bytes {
    // These types always serialise; an empty line is what a client skips.
    let mut line = serde_json::to_vec(progress).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> McpTestResult {
        let runtime = serde_json::json!({
            "status": "connected", "retry_count": 0, "tool_count": 0, "tools": [], "steps": [],
        });
        McpTestResult {
            ok: true,
            runtime: serde_json::from_value(runtime).expect("a runtime"),
            log: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_test_goes_on_whether_or_not_anybody_reads() {
        let (tell, news) = mpsc::channel(1);
        let (is_over, over) = tokio::sync::oneshot::channel();
        let mut trial = Trial::begin(
            async move {
                for line in ["one", "two"] {
                    let line = line.to_owned();
                    drop(tell.try_send(McpProgress::Output { line }));
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
                is_over.send(()).expect("somebody waits");
                Ok(result())
            },
            news,
        );
        over.await.expect("it came to its end");
        let first = trial.next().await.expect("no failure");
        assert!(matches!(first, Some(McpProgress::Output { line }) if line == "one"));
        let last = trial.next().await.expect("no failure");
        assert!(matches!(last, Some(McpProgress::Done { .. })), "{last:?}");
        assert_eq!(trial.next().await.expect("no failure"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_test_ends_with_its_answer() {
        let (tell, news) = mpsc::channel::<McpProgress>(1);
        let (held, gone) = tokio::sync::oneshot::channel::<()>();
        let trial = Trial::begin(
            async move {
                let _held = (tell, held);
                std::future::pending().await
            },
            news,
        );
        tokio::task::yield_now().await;
        drop(trial);
        gone.await.expect_err("it was dropped");
    }

    #[test]
    fn only_who_wants_nothing_but_json_waits_for_the_result() {
        let check = |accept: &[&str], expected: bool| {
            let headers: HeaderMap = accept
                .iter()
                .map(|value| (header::ACCEPT, value.parse().expect("header")))
                .collect();
            assert_eq!(wants_result(&headers), expected, "{accept:?}");
        };
        check(&[], false);
        check(&["*/*"], false);
        check(&["application/x-ndjson"], false);
        check(&["application/json"], true);
        check(&["application/json; q=0.9"], true);
        check(&["application/json, application/x-ndjson"], false);
        check(&["application/json", "application/x-ndjson"], false);
    }
}
