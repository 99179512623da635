//! The daemon is killed. Its containers go on, and the next daemon has them, engine or no engine.

use std::sync::Arc;

use boxwood_api::ProcessStatus;

use crate::boxes::{engine_has_only_boxes_of, keep, kept, listed, says};
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::traces::{running, word};
use crate::waiting::until;

#[tokio::test(flavor = "multi_thread")]
async fn containers_outlive_a_killed_daemon_and_go_with_the_next_one() {
    let engine = Engine::chosen();
    let first = Daemon::start(&engine.wanted()).await;
    says(&first.client, "lasting", "echo written > /workspace/file").await;
    let word = word("adopted");
    keep(&first, "lasting", &word).await;
    let name = listed(&first).await.pop_first().expect("one box");
    let init = engine.init_of(&name);
    let directory = first.kill().await;
    assert_eq!(running(&word), 1, "it goes on without the daemon");

    let second = Daemon::start_in(Arc::clone(&directory), &engine.wanted()).await;
    assert_eq!(kept(&second, "lasting").await, ProcessStatus::Running);
    let text = says(&second.client, "lasting", "cat /workspace/file").await;
    assert_eq!(text, "written\n");
    assert_eq!(engine.init_of(&name), init);
    // The first new box sweeps what dead daemons left; this one has an owner again.
    says(&second.client, "new", "true").await;
    assert!(listed(&second).await.contains(&name));
    engine_has_only_boxes_of(&engine, &[&second], &[]).await;
    assert_eq!(running(&word), 1);
    second.stop().await;
    until("its processes end", || running(&word) == 0).await;
    until("its container is gone", || {
        !engine.containers().contains(&name)
    })
    .await;
}
