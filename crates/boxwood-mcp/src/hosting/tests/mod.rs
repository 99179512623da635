//! Hosting with a fake runtime.
//!
//! Tests of timing use servers that run as tasks, with paused time. The others use real processes.

mod adoption;
mod changes;
mod cleanup;
mod client_processes;
mod fake_server;
mod gateway;
mod idle;
mod lifecycle;
mod program;
mod real;
mod runtime;
mod starts;
mod test_runs;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpRuntimeInfo, McpServerName, McpServerSpec, McpStatus, SessionId};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use self::fake_server::FakeServer;
use self::runtime::TestRuntime;
use super::definitions::store::Stored;
use super::supervisor::state::ServerState;
use super::{Hosting, HostingSettings};

struct Fixture {
    runtime: Arc<TestRuntime>,
    hosting: Hosting,
    dir: tempfile::TempDir,
}

fn settings_in(directory: &Path) -> HostingSettings {
    HostingSettings::new(directory.join("mcp"))
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HostingSettings)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = Arc::new(TestRuntime::default());
        runtime.program("well", |pipes| FakeServer::default().serve(pipes));
        let mut settings = settings_in(dir.path());
        change(&mut settings);
        let hosting = Hosting::new(Arc::clone(&runtime) as _, settings).expect("hosting");
        hosting.begin();
        Self {
            runtime,
            hosting,
            dir,
        }
    }

    fn add_program(&self, program: &str, fake_server: FakeServer) {
        self.runtime
            .program(program, move |pipes| fake_server.clone().serve(pipes));
    }

    async fn add(&self, spec: Value) -> McpServerName {
        let spec = spec_of(spec);
        let name = spec.name.clone();
        self.hosting.add(spec, false).await.expect("added");
        name
    }

    /// Adds a server that works and waits until it is connected.
    async fn add_connected(&self, name: &str) -> McpServerName {
        let name = self.add(json!({"name": name, "command": "well"})).await;
        self.until(&name, |runtime| runtime.status == McpStatus::Connected)
            .await;
        name
    }

    fn runtime_of(&self, name: &McpServerName) -> McpRuntimeInfo {
        self.hosting.get(name).expect("there").runtime
    }

    /// Waits for at most an hour of test time.
    async fn until(
        &self,
        name: &McpServerName,
        condition: impl Fn(&McpRuntimeInfo) -> bool,
    ) -> McpRuntimeInfo {
        let mut changes = self.hosting.changes();
        let waiting = tokio::time::timeout(Duration::from_hours(1), async {
            loop {
                changes.borrow_and_update();
                let runtime = self.runtime_of(name);
                if condition(&runtime) {
                    return runtime;
                }
                changes.changed().await.expect("hosting is there");
            }
        });
        waiting
            .await
            .unwrap_or_else(|_| panic!("never so: {:#?}", self.runtime_of(name)))
    }

    async fn until_status(&self, name: &McpServerName, status: McpStatus) -> McpRuntimeInfo {
        self.until(name, |runtime| runtime.status == status).await
    }

    /// Number of entries in a subdirectory of hosting.
    fn entries(&self, subdirectory: &str) -> usize {
        let path = self.dir.path().join("mcp").join(subdirectory);
        std::fs::read_dir(path).expect("listed").count()
    }
}

fn spec_of(spec: Value) -> McpServerSpec {
    serde_json::from_value(spec).expect("a spec")
}

fn state_of(spec: &McpServerSpec, session: SessionId) -> ServerState {
    let now = Timestamp::now();
    let stored = Stored {
        spec: spec.clone(),
        created_at: now,
        updated_at: now,
    };
    ServerState::new(stored, session, watch::Sender::new(0))
}

fn nothing() -> Map<String, Value> {
    Map::new()
}

fn name(text: &str) -> McpServerName {
    McpServerName::new(text).expect("a name")
}
