//! nsjail has no daemon: a box is an nsjail process with an init as its child, and either can be killed.

use boxwood_api::{ProcessStatus, Reason};
use rustix::process::{Pid, Signal, kill_process};

use crate::boxes::{Running, id, keep, kept, listed, stdout_of};
use crate::daemon::{Daemon, DaemonSettings};
use crate::engine::variable;
use crate::hosting::a_server_is_hosted_to_its_end;
use crate::traces::{cgroups_of, children_of, command_lines, marker, running};
use crate::waiting::{answered, until};

fn daemon_settings() -> DaemonSettings {
    let daemon_settings = DaemonSettings {
        backend: Some("nsjail"),
        settings: Vec::new(),
    };
    daemon_settings.with("BOXWOOD_NSJAIL__PROGRAM", variable("BOXWOOD_TEST_NSJAIL"))
}

/// The nsjail process of the only box, and the init that it started.
fn jail_of(daemon: &Daemon) -> (i32, i32) {
    let children = children_of(daemon.pid());
    let lines = command_lines();
    let is_jail = |pid: &i32| {
        let mut process_lines = lines.iter().filter(|(number, _)| number == pid);
        process_lines.any(|(_, line)| line.contains("nsjail"))
    };
    let jail = children.into_iter().find(is_jail).expect("a jail");
    let inits = children_of(u32::try_from(jail).expect("a pid"));
    (jail, *inits.first().expect("an init"))
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("it is killed");
}

async fn dies(test: &str, victim: impl Fn((i32, i32)) -> i32) {
    let daemon = Daemon::start(&daemon_settings()).await;
    let marker = marker(test);
    let call = Running::begin(&daemon, "jailed", &marker).await;
    let name = listed(&daemon).await.pop_first().expect("one box");
    kill(victim(jail_of(&daemon)));
    call.ends_by(&[Reason::BoxGone]).await;
    until("its processes are gone", || running(&marker) == 0).await;

    assert_eq!(
        stdout_of(&daemon.client, "jailed", "echo back").await,
        "back\n"
    );
    let now = listed(&daemon).await;
    assert!(
        now.len() == 1 && !now.contains(&name),
        "{now:?} after {name}"
    );
    let deleted = answered("a delete", daemon.client.delete_session(&id("jailed"))).await;
    deleted.expect("it is deleted");
    until("its cgroups are gone", || cgroups_of(&name).is_empty()).await;
    until("its directory is gone", || {
        daemon.directories_of_boxes().is_empty()
    })
    .await;
    until("only the helper that every daemon has is left", || {
        children_of(daemon.pid()).len() <= 1
    })
    .await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_nsjail_is_reported_as_a_lost_box() {
    dies("jail", |(jail, _)| jail).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_init_is_reported_as_a_lost_box() {
    dies("init", |(_, init)| init).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jails_outlive_a_killed_daemon_and_go_with_the_next_one() {
    let first = Daemon::start(&daemon_settings()).await;
    stdout_of(&first.client, "jailed", "echo written > /workspace/file").await;
    let marker = marker("adopted");
    keep(&first, "jailed", &marker).await;
    let name = listed(&first).await.pop_first().expect("one box");
    let (jail, _) = jail_of(&first);
    let directory = first.kill().await;
    assert_eq!(running(&marker), 1, "it goes on without the daemon");

    let second = Daemon::start_in(directory, &daemon_settings()).await;
    assert_eq!(kept(&second, "jailed").await, ProcessStatus::Running);
    let text = stdout_of(&second.client, "jailed", "cat /workspace/file").await;
    assert_eq!(text, "written\n");
    assert!(listed(&second).await.contains(&name));
    second.stop().await;
    until("its processes end", || running(&marker) == 0).await;
    until("its nsjail ends", || {
        command_lines().iter().all(|(pid, _)| *pid != jail)
    })
    .await;
    until("its cgroups are gone", || cgroups_of(&name).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_server_is_hosted_to_its_end() {
    a_server_is_hosted_to_its_end(daemon_settings(), None).await;
}
