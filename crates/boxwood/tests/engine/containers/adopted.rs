//! The daemon is killed. Its containers keep running, and the next daemon adopts them, also if the engine is unavailable.

use std::sync::Arc;

use boxwood_api::ProcessStatus;

use crate::boxes::{engine_has_only_boxes_of, keep, kept, listed, stdout_of};
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::traces::{marker, running};
use crate::waiting::until;

#[tokio::test(flavor = "multi_thread")]
async fn containers_outlive_a_killed_daemon_and_go_with_the_next_one() {
    let engine = Engine::chosen();
    let first = Daemon::start(&engine.daemon_settings()).await;
    stdout_of(&first.client, "lasting", "echo written > /workspace/file").await;
    let marker = marker("adopted");
    keep(&first, "lasting", &marker).await;
    let name = listed(&first).await.pop_first().expect("one box");
    let init = engine.init_of(&name);
    let directory = first.kill().await;
    assert_eq!(running(&marker), 1, "it goes on without the daemon");

    let second = Daemon::start_in(Arc::clone(&directory), &engine.daemon_settings()).await;
    assert_eq!(kept(&second, "lasting").await, ProcessStatus::Running);
    let text = stdout_of(&second.client, "lasting", "cat /workspace/file").await;
    assert_eq!(text, "written\n");
    assert_eq!(engine.init_of(&name), init);
    // The first new box removes leftovers of killed daemons. An adopted box is not one of them.
    stdout_of(&second.client, "new", "true").await;
    assert!(listed(&second).await.contains(&name));
    engine_has_only_boxes_of(&engine, &[&second], &[]).await;
    assert_eq!(running(&marker), 1);
    second.stop().await;
    until("its processes end", || running(&marker) == 0).await;
    until("its container is gone", || {
        !engine.containers().contains(&name)
    })
    .await;
}
