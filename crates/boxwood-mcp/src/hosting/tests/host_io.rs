//! File system work on host directories, which may never respond.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpPhase;
use serde_json::json;

use super::runtime::TestRuntime;
use super::{settings_in, spec_of, state_of};
use crate::hosting::boxes::box_spec::BoxLifetime;
use crate::hosting::boxes::ids;
use crate::hosting::context::{HostContext, MAX_HOST_IO};
use crate::hosting::supervisor::start::Start;

fn context() -> (tempfile::TempDir, Arc<HostContext>) {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = Arc::new(TestRuntime::default());
    let context = HostContext::open(runtime, settings_in(dir.path())).expect("a context");
    (dir, context)
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_while_an_unresponsive_file_system_blocks_all_threads() {
    let (_dir, context) = context();
    let room = u32::try_from(MAX_HOST_IO).expect("few");
    let taken = context.host_io_permits.acquire_many(room).await;
    let taken = taken.expect("room");
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
    drop(taken);
    let fault = start.run().await.err().expect("there is no such program");
    assert_ne!(fault.phase, McpPhase::SessionCreate, "{}", fault.message);
}

#[tokio::test]
async fn a_blocked_file_operation_keeps_its_permit() {
    let (_dir, context) = context();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let look = context.on_host(move || ends.recv().is_err());
    let give_up_fault = tokio::time::timeout(Duration::from_millis(50), look).await;
    assert!(give_up_fault.is_err());
    assert_eq!(context.host_io_permits.available_permits(), MAX_HOST_IO - 1);
    drop(end);
    let room = u32::try_from(MAX_HOST_IO).expect("few");
    let all = context.host_io_permits.acquire_many(room).await;
    drop(all.expect("it comes back"));
}
