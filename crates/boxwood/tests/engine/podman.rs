//! Podman has no daemon; each container has a monitor, `conmon`, which can be killed.

use boxwood_api::Reason;
use rustix::process::{Pid, Signal, kill_process};

use crate::boxes::{Running, exec, id, listed, stdout_of};
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::traces::{marker, running};
use crate::waiting::{answered, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_monitor_leaves_nothing_behind() {
    let engine = Engine::chosen();
    let daemon = Daemon::start(&engine.daemon_settings()).await;
    let marker = marker("conmon");
    let call = Running::begin(&daemon, "watched", &marker).await;
    let container = listed(&daemon).await.pop_first().expect("one box");
    let monitor = engine.inspect(&container)["State"]["ConmonPid"].as_i64();
    let monitor = monitor
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    kill_process(monitor.expect("a monitor"), Signal::KILL).expect("it is killed");

    // The box keeps running or ends with a reason; requests get a response in both cases.
    let answer = exec(&daemon.client, "watched", "echo here").await;
    let lived_on = answer.is_ok_and(|result| result.stdout == "here\n" && call.goes_on());
    let deleted = answered("a delete", daemon.client.delete_session(&id("watched"))).await;
    deleted.expect("it is deleted");
    let expected = if lived_on {
        Reason::Cancelled
    } else {
        Reason::BoxGone
    };
    call.ends_by(&[expected]).await;
    assert_eq!(running(&marker), 0, "a deleted session runs on");
    until("its container is gone", || {
        !engine.containers().contains(&container)
    })
    .await;
    until("its directory is gone", || {
        daemon.directories_of_boxes().is_empty()
    })
    .await;
    assert_eq!(
        stdout_of(&daemon.client, "watched", "echo back").await,
        "back\n"
    );
    daemon.stop().await;
}
