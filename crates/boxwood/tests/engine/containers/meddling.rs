//! Containers that are removed or killed outside the daemon.

use boxwood_api::Reason;
use rustix::process::{Pid, Signal, kill_process};

use crate::boxes::{Running, id, keep, listed, stdout_of};
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::traces::{cgroups_of, marker, running};
use crate::waiting::{answered, until};

async fn survives(test: &str, meddle: impl Fn(&Engine, &str)) {
    let engine = Engine::chosen();
    let daemon = Daemon::start(&engine.daemon_settings()).await;
    let (marker, process) = (marker(test), marker(&format!("{test}-process")));
    let call = Running::begin(&daemon, "robbed", &marker).await;
    keep(&daemon, "robbed", &process).await;
    let other = Running::begin(&daemon, "other", &format!("{marker}-other")).await;
    let session = answered("a session", daemon.client.session(&id("robbed"))).await;
    let container = session.expect("it is there").session.backend_session_id;
    let container_id = engine.inspect(&container)["Id"]
        .as_str()
        .expect("an id")
        .to_owned();

    meddle(&engine, &container);
    call.ends_by(&[Reason::BoxGone]).await;
    until("its processes are gone", || {
        running(&marker) == usize::from(other.goes_on()) && running(&process) == 0
    })
    .await;
    assert!(other.goes_on(), "another session has suffered");

    // The next command gets a new box.
    assert_eq!(
        stdout_of(&daemon.client, "robbed", "echo back").await,
        "back\n"
    );
    let now = listed(&daemon).await;
    assert!(!now.contains(&container), "{now:?}");
    assert_eq!(now.len(), 2);
    for session in ["robbed", "other"] {
        let deleted = answered("a delete", daemon.client.delete_session(&id(session))).await;
        deleted.expect("it is deleted");
    }
    other.ends_by(&[Reason::Cancelled]).await;
    until("its containers are gone", || {
        let there = engine.containers();
        !there.contains(&container) && now.is_disjoint(&there)
    })
    .await;
    until("its cgroups are gone", || {
        cgroups_of(&container_id).is_empty()
    })
    .await;
    until("directories are gone", || {
        daemon.directories_of_boxes().is_empty()
    })
    .await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_removed_from_outside_is_reported_as_a_lost_box() {
    survives("removed", |engine, container| {
        engine.run(&["rm", "--force", container]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_from_outside_is_reported_as_a_lost_box() {
    survives("killed", |engine, container| {
        engine.run(&["kill", container]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_that_is_killed_from_outside_is_reported_as_a_lost_box() {
    survives("init", |engine, container| {
        let init = Pid::from_raw(engine.init_of(container)).expect("a pid");
        kill_process(init, Signal::KILL).expect("it is killed");
    })
    .await;
}
