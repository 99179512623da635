//! Which arguments of which tools are repeated in headers, as the servers last listed it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::json::object;
use super::mirrored::{Mirrored, mirrored};
use super::refusal::Refusal;

const FRESH: Duration = Duration::from_mins(1);
/// A tool that is not in the list may be a new one; nobody makes us ask more often.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of all marks of one server: a path that many arguments share is kept for each.
const MOST_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Schemas {
    servers: Mutex<HashMap<McpServerName, Arc<Listed>>>,
}

/// What one server listed last.
#[derive(Default)]
struct Listed {
    known: Mutex<Option<Known>>,
    /// Held while it is asked: a list may be long, and one of them is enough for all who wait.
    asking: tokio::sync::Mutex<()>,
}

struct Known {
    connection: u64,
    since: Instant,
    tools: HashMap<String, Vec<Mirrored>>,
}

impl Schemas {
    /// What of this tool's arguments is repeated. Nothing when the server cannot say it. `names` are the
    /// servers there are; what others listed is forgotten.
    pub(crate) async fn of(
        &self,
        names: impl FnOnce() -> Vec<McpServerName>,
        server: &McpServerName,
        connection: u64,
        tool: &str,
        list: impl Future<Output = Result<Vec<Box<RawValue>>, Refusal>>,
    ) -> Vec<Mirrored> {
        let listed = self.server(names, server);
        if let Some(found) = listed.find(connection, tool) {
            return found;
        }
        let _asking = listed.asking.lock().await;
        if let Some(found) = listed.find(connection, tool) {
            return found;
        }
        let tools = list.await.unwrap_or_default();
        let mut left = MOST_BYTES;
        let tools = tools.iter().filter_map(|tool| {
            let tool = object(tool)?;
            let marks = tool.get("inputSchema").map(mirrored).unwrap_or_default();
            Some((tool.text("name")?, within(&mut left, marks)))
        });
        let tools: HashMap<_, _> = tools.collect();
        let found = tools.get(tool).cloned().unwrap_or_default();
        *lock(&listed.known) = Some(Known {
            connection,
            since: Instant::now(),
            tools,
        });
        found
    }

    fn server(
        &self,
        names: impl FnOnce() -> Vec<McpServerName>,
        server: &McpServerName,
    ) -> Arc<Listed> {
        let mut servers = lock(&self.servers);
        if !servers.contains_key(server) {
            let names = names();
            servers.retain(|name, _| names.contains(name));
        }
        Arc::clone(servers.entry(server.clone()).or_default())
    }
}

/// A server with more marks than that has those that came first.
fn within(left: &mut usize, marks: Vec<Mirrored>) -> Vec<Mirrored> {
    let bytes = marks.iter().map(Mirrored::bytes).sum();
    match left.checked_sub(bytes) {
        Some(rest) => {
            *left = rest;
            marks
        }
        None => Vec::new(),
    }
}

impl Listed {
    /// `None` when the server has to be asked.
    fn find(&self, connection: u64, tool: &str) -> Option<Vec<Mirrored>> {
        let known = lock(&self.known);
        let known = known.as_ref();
        let known = known.filter(|known| known.connection == connection)?;
        let age = known.since.elapsed();
        let found = known.tools.get(tool);
        let is_known = (age < FRESH && found.is_some()) || age < PATIENCE;
        is_known.then(|| found.cloned().unwrap_or_default())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use serde_json::json;

    use super::*;
    use crate::gateway::json::raw;

    #[tokio::test(start_paused = true)]
    async fn a_server_is_asked_once_for_all_who_wait() {
        let schemas = Schemas::default();
        let server = McpServerName::new("some").expect("a legal name");
        let names = || vec![server.clone()];
        let (going, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let list = async || {
            assert_eq!(going.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(5)).await;
            going.fetch_sub(1, Ordering::Relaxed);
            let marked = json!({"type": "string", "x-mcp-header": "Region"});
            Ok(vec![raw(&json!({"name": "region",
                "inputSchema": {"properties": {"region": marked}}}))])
        };
        let callers = (0..20).map(|_| schemas.of(names, &server, 1, "region", list()));
        let found = join_all(callers).await;
        assert!(found.iter().all(|found| found.len() == 1));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        schemas.of(names, &server, 2, "region", list()).await;
        assert_eq!(asked.load(Ordering::Relaxed), 2, "it is another process");
    }

    #[tokio::test]
    async fn marks_of_one_server_are_bounded() {
        let schemas = Schemas::default();
        let server = McpServerName::new("some").expect("a legal name");
        let marks = (0..60).map(|at| {
            let mark = json!({"type": "string", "x-mcp-header": format!("H{at}")});
            (format!("a{at}"), mark)
        });
        let marks: serde_json::Map<_, _> = marks.collect();
        let schema = json!({"properties": {"x".repeat(1000): {"properties": marks}}});
        let tool = |number: usize| {
            raw(&json!({"name": format!("t{number}"),
            "inputSchema": schema}))
        };
        let tools: Vec<_> = (0..100).map(tool).collect();
        let list = async || Ok(tools.clone());
        let names = || vec![server.clone()];
        let first = schemas.of(names, &server, 1, "t0", list()).await;
        assert_eq!(first.len(), 60);
        let kept = schemas.server(names, &server);
        let kept = lock(&kept.known);
        let kept = &kept.as_ref().expect("a list").tools;
        let bytes = kept.values().flatten().map(Mirrored::bytes).sum::<usize>();
        assert!((MOST_BYTES / 2..=MOST_BYTES).contains(&bytes), "{bytes}");
        assert_eq!(kept.len(), 100, "all are known");
    }
}
