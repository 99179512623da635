//! nsjail has no daemon either: a box is one process and the init below it, and either can be killed.

use boxwood_api::Reason;
use rustix::process::{Pid, Signal, kill_process};

use crate::boxes::{Running, id, listed, says};
use crate::daemon::{Daemon, Wanted};
use crate::engine::variable;
use crate::traces::{cgroups_of, children_of, command_lines, running, word};
use crate::waiting::{answered, until};

fn wanted() -> Wanted {
    let wanted = Wanted {
        backend: Some("nsjail"),
        settings: Vec::new(),
    };
    wanted.with("BOXWOOD_NSJAIL__PROGRAM", variable("BOXWOOD_TEST_NSJAIL"))
}

/// The nsjail process of the only box, and the init that it started.
fn jail_of(daemon: &Daemon) -> (i32, i32) {
    let children = children_of(daemon.pid());
    let lines = command_lines();
    let is_jail = |pid: &i32| {
        let mut words = lines.iter().filter(|(number, _)| number == pid);
        words.any(|(_, line)| line.contains("nsjail"))
    };
    let jail = children.into_iter().find(is_jail).expect("a jail");
    let inits = children_of(u32::try_from(jail).expect("a pid"));
    (jail, *inits.first().expect("an init"))
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("it is killed");
}

async fn dies(test: &str, victim: impl Fn((i32, i32)) -> i32) {
    let daemon = Daemon::start(&wanted()).await;
    let word = word(test);
    let call = Running::begin(&daemon, "jailed", &word).await;
    let name = listed(&daemon).await.pop_first().expect("one box");
    kill(victim(jail_of(&daemon)));
    call.ends_by(&[Reason::BoxGone]).await;
    until("its processes are gone", || running(&word) == 0).await;

    assert_eq!(says(&daemon.client, "jailed", "echo back").await, "back\n");
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
    let jails = |lines: Vec<i32>| lines.len();
    let left = jails(children_of(daemon.pid()));
    daemon.stop().await;
    // The helper that every daemon has.
    assert!(left <= 1, "{left} children of a daemon without boxes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_nsjail_is_a_box_that_is_gone() {
    dies("jail", |(jail, _)| jail).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_init_is_a_box_that_is_gone() {
    dies("init", |(_, init)| init).await;
}
