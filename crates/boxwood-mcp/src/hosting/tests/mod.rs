//! Servers that are hosted for real, in boxes of a test runtime.
//!
//! Where time matters, servers are tasks and time stands still until everybody waits for it. The others
//! are real processes.

mod adoption;
mod changing;
mod children;
mod copies;
mod faults;
mod gateway;
mod habits;
mod installs;
mod keeping;
mod program;
mod real;
mod retry_model;
mod runtime;
mod sleeping;
mod sweeping;
mod trials;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpRuntimeInfo, McpServerName, McpServerSpec, McpStatus};
use serde_json::{Map, Value, json};

use self::habits::Habits;
use self::runtime::TestRuntime;
use super::{Hosting, HostingSettings};

struct House {
    runtime: Arc<TestRuntime>,
    hosting: Hosting,
    dir: tempfile::TempDir,
}

impl House {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HostingSettings)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = Arc::new(TestRuntime::default());
        runtime.program("well", |pipes| Habits::default().serve(pipes));
        let mut settings = HostingSettings::new(dir.path().join("mcp"));
        change(&mut settings);
        let hosting = Hosting::new(Arc::clone(&runtime) as _, settings).expect("hosting");
        hosting.begin();
        Self {
            runtime,
            hosting,
            dir,
        }
    }

    /// A server whose program has these habits.
    fn knows(&self, program: &str, habits: Habits) {
        self.runtime
            .program(program, move |pipes| habits.clone().serve(pipes));
    }

    async fn add(&self, spec: Value) -> McpServerName {
        let spec = spec_of(spec);
        let name = spec.name.clone();
        self.hosting.add(spec, false).await.expect("added");
        name
    }

    /// A server that is well, connected.
    async fn well(&self, name: &str) -> McpServerName {
        let name = self.add(json!({"name": name, "command": "well"})).await;
        self.until(&name, |runtime| runtime.status == McpStatus::Connected)
            .await;
        name
    }

    fn runtime_of(&self, name: &McpServerName) -> McpRuntimeInfo {
        self.hosting.get(name).expect("there").runtime
    }

    /// Waits for it to be so, an hour at most.
    async fn until(
        &self,
        name: &McpServerName,
        is_so: impl Fn(&McpRuntimeInfo) -> bool,
    ) -> McpRuntimeInfo {
        let mut changes = self.hosting.changes();
        let waited = tokio::time::timeout(Duration::from_hours(1), async {
            loop {
                changes.borrow_and_update();
                let runtime = self.runtime_of(name);
                if is_so(&runtime) {
                    return runtime;
                }
                changes.changed().await.expect("hosting is there");
            }
        });
        waited
            .await
            .unwrap_or_else(|_| panic!("never so: {:#?}", self.runtime_of(name)))
    }

    async fn until_status(&self, name: &McpServerName, status: McpStatus) -> McpRuntimeInfo {
        self.until(name, |runtime| runtime.status == status).await
    }

    /// How many entries there are below the directory of hosting.
    fn entries(&self, below: &str) -> usize {
        let place = self.dir.path().join("mcp").join(below);
        std::fs::read_dir(place).expect("listed").count()
    }
}

fn spec_of(spec: Value) -> McpServerSpec {
    serde_json::from_value(spec).expect("a spec")
}

/// No arguments.
fn nothing() -> Map<String, Value> {
    Map::new()
}

fn name(text: &str) -> McpServerName {
    McpServerName::new(text).expect("a name")
}
