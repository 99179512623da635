//! File system work on host directories, which may never respond.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpPhase;
use serde_json::json;

use crate::hosting::boxes::box_spec::BoxLifetime;
use crate::hosting::boxes::ids;
use crate::hosting::context::{HostContext, MAX_HOST_IO};
use crate::hosting::supervisor::start::Start;
use crate::hosting::tests::runtime::TestRuntime;
use crate::hosting::tests::{settings_in, spec_of, state_of};

fn context() -> (tempfile::TempDir, Arc<HostContext>) {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = Arc::new(TestRuntime::default());
    let context = HostContext::open(runtime, settings_in(dir.path())).expect("a context");
    (dir, context)
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_while_an_unresponsive_file_system_blocks_all_threads() {
    let (_dir, context) = context();
    let count = u32::try_from(MAX_HOST_IO).expect("few");
    let permits = context.host_io_permits.acquire_many(count).await;
    let permits = permits.expect("room");
    let spec = spec_of(json!({"name": "time", "command": "no-such-program"}));
    let start = Start {
        context: &context,
        spec: &spec,
        state: &state_of(&spec, ids::session_of(&spec.name)),
        lifetime: BoxLifetime::Persistent,
    };
    let fault = start.run().await.err().expect("it ran out of time");
    assert_eq!(fault.phase, McpPhase::SessionCreate);
    assert!(fault.message.contains("timeout"), "{}", fault.message);
    drop(permits);
    let fault = start.run().await.err().expect("there is no such program");
    assert_ne!(fault.phase, McpPhase::SessionCreate, "{}", fault.message);
}

#[tokio::test]
async fn a_blocked_file_operation_keeps_its_permit() {
    let (_dir, context) = context();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let operation = context.on_host(move || finished.recv().is_err());
    let result = tokio::time::timeout(Duration::from_millis(50), operation).await;
    assert!(result.is_err());
    assert_eq!(context.host_io_permits.available_permits(), MAX_HOST_IO - 1);
    drop(finish);
    let count = u32::try_from(MAX_HOST_IO).expect("few");
    let permits = context.host_io_permits.acquire_many(count).await;
    drop(permits.expect("it comes back"));
}
