//! Streams the progress of server starts and tests as JSON lines.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{McpProgress, McpServerSpec, McpTestResult};
use boxwood_mcp::HostingError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::servers::OfServer;
use crate::http::App;
use crate::http::error::ApiResult;
use crate::http::json::{self, JsonBody};

const LINES: &str = "application/x-ndjson";

/// Lines queued for a slow client. Further lines of a test are dropped.
const PROGRESS_QUEUE: usize = 64;

#[utoipa::path(get, path = "/v1/mcp/servers/{name}/progress", tag = "mcp", operation_id = "follow_mcp_server",
    responses(
        (status = 200, content_type = "application/x-ndjson", body = McpProgress,
            description = "One JSON object per line: the phases so far, then further ones as they occur; `done` is the last")))]
pub(crate) async fn progress(
    State(app): State<Arc<App>>,
    OfServer { name, hosting }: OfServer,
) -> ApiResult {
    let events = hosting.progress(&name)?;
    Ok(lines(events, &app))
}

#[utoipa::path(post, path = "/v1/mcp/test", tag = "mcp", operation_id = "test_mcp_server",
    request_body = McpServerSpec,
    responses(
        (status = 200, description = "The result of the test; with `Accept: application/x-ndjson`, or \
            any other but JSON, its progress as lines of `McpProgress`", body = McpTestResult)))]
pub(crate) async fn test(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(spec): JsonBody<McpServerSpec>,
) -> ApiResult {
    let hosting = app.mcp.hosting()?.clone();
    let (sender, events) = mpsc::channel(PROGRESS_QUEUE);
    let running_test = RunningTest::begin(async move { hosting.test(spec, sender).await }, events);
    answer(running_test, &headers, &app).await
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/test", tag = "mcp", operation_id = "test_stored_mcp_server",
    responses(
        (status = 200, description = "As for `/v1/mcp/test`, for the stored server with its secrets; the \
            running server is not affected", body = McpTestResult)))]
pub(crate) async fn test_stored(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    OfServer { name, hosting }: OfServer,
) -> ApiResult {
    let hosting = hosting.clone();
    let (sender, events) = mpsc::channel(PROGRESS_QUEUE);
    let running_test = RunningTest::begin(
        async move { hosting.test_stored(&name, sender).await },
        events,
    );
    answer(running_test, &headers, &app).await
}

/// Dropping the response ends the test and deletes its box.
async fn answer(mut running_test: RunningTest, headers: &HeaderMap, app: &App) -> ApiResult {
    if wants_result(headers) {
        return Ok(json::ok(running_test.result().await?));
    }
    // Invalid definitions are refused before the stream starts.
    let first = running_test.next().await?;
    let rest = stream::unfold(running_test, async |mut running_test| {
        let next = running_test.next().await.ok().flatten()?;
        Some((next, running_test))
    });
    Ok(lines(stream::iter(first).chain(rest), app))
}

/// Whether the client accepts only plain JSON.
fn wants_result(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|kind| kind.split(';').next().unwrap_or_default().trim())
        .peekable();
    accepted.peek().is_some() && accepted.all(|kind| kind == "application/json")
}

/// A running test and its progress. Runs in its own task, because it holds a permit that others
/// wait for and must not wait for a slow client. Dropping it ends the test.
struct RunningTest {
    /// The task; empty once its result has been taken.
    testing: JoinSet<Result<McpTestResult, HostingError>>,
    events: mpsc::Receiver<McpProgress>,
    is_done: bool,
}

impl RunningTest {
    fn begin(
        test: impl Future<Output = Result<McpTestResult, HostingError>> + Send + 'static,
        events: mpsc::Receiver<McpProgress>,
    ) -> Self {
        let mut testing = JoinSet::new();
        testing.spawn(test);
        Self {
            testing,
            events,
            is_done: false,
        }
    }

    /// The next progress line. The last one is always delivered.
    async fn next(&mut self) -> Result<Option<McpProgress>, HostingError> {
        // Closed when the test has ended.
        if let Some(progress) = self.events.recv().await {
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
        while self.events.recv().await.is_some() {}
        self.outcome().await
    }

    async fn outcome(&mut self) -> Result<McpTestResult, HostingError> {
        match self.testing.join_next().await {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) | None => Err(HostingError::Closing),
        }
    }
}

fn lines(events: impl Stream<Item = McpProgress> + Send + 'static, app: &App) -> Response {
    let lines = events
        .map(|progress| Ok::<_, Infallible>(line(&progress)))
        .take_until(app.stopped());
    let headers = [
        (header::CONTENT_TYPE, LINES),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(lines)).into_response()
}

fn line(progress: &McpProgress) -> Bytes {
    // Cannot fail for these types; clients skip empty lines.
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
    async fn a_test_continues_when_its_progress_is_not_read() {
        let (sender, events) = mpsc::channel(1);
        let (is_over, over) = tokio::sync::oneshot::channel();
        let mut running_test = RunningTest::begin(
            async move {
                for line in ["one", "two"] {
                    let line = line.to_owned();
                    drop(sender.try_send(McpProgress::Output { line }));
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
                is_over.send(()).expect("a receiver waits");
                Ok(result())
            },
            events,
        );
        over.await.expect("the test has ended");
        let first = running_test.next().await.expect("no failure");
        assert!(matches!(first, Some(McpProgress::Output { line }) if line == "one"));
        let last = running_test.next().await.expect("no failure");
        assert!(matches!(last, Some(McpProgress::Done { .. })), "{last:?}");
        assert_eq!(running_test.next().await.expect("no failure"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_test_is_cancelled_when_its_response_is_dropped() {
        let (sender, events) = mpsc::channel::<McpProgress>(1);
        let (held, gone) = tokio::sync::oneshot::channel::<()>();
        let running_test = RunningTest::begin(
            async move {
                let _held = (sender, held);
                std::future::pending().await
            },
            events,
        );
        tokio::task::yield_now().await;
        drop(running_test);
        gone.await.expect_err("it was dropped");
    }

    #[test]
    fn only_clients_that_accept_json_alone_get_the_plain_result() {
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
