//! Two daemons and LangBot Box use the same engine. One of the daemons is killed repeatedly.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ErrorCode, ProcessStatus};
use boxwood_suites::long_form;

use crate::boxes::{
    engine_has_only_boxes_of, exec, id, keep, keep_script, kept, listed, stdout_of,
};
use crate::daemon::Daemon;
use crate::dockerd::Dockerd;
use crate::engine::Engine;
use crate::traces::{began, marker, running};
use crate::waiting::{answered, until};

/// Number of kills.
fn rounds() -> u32 {
    if long_form() { 100 } else { 10 }
}

/// A container of LangBot Box.
const OTHER: &str = "langbot-box";

/// State of the other daemon's box that must not change.
#[derive(Debug, PartialEq, Eq)]
struct Same {
    id: String,
    init: i32,
    began: Option<u64>,
    restarts: i64,
}

fn same(engine: &Engine, container: &str) -> Same {
    let inspected = engine.inspect(container);
    let init = engine.init_of(container);
    Same {
        id: inspected["Id"].as_str().expect("an id").to_owned(),
        init,
        began: began(init),
        restarts: inspected["RestartCount"].as_i64().expect("a number"),
    }
}

async fn count(steady: &Daemon) -> u64 {
    let text = stdout_of(&steady.client, "steady", "cat /workspace/count").await;
    // Between its two steps a write has emptied the file.
    text.trim().parse().unwrap_or_default()
}

/// The other rounds skip the slow checks.
fn is_looked_at(round: u32) -> bool {
    round.is_multiple_of(10) || round == rounds() - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_kills_of_one_daemon_affect_no_other_box_and_leave_nothing() {
    let dockerd = Dockerd::start().await;
    let engine = &dockerd.engine;
    let sleep = "while :; do sleep 1; done";
    engine.run(&[
        "run",
        "--detach",
        "--network",
        "none",
        "--name",
        OTHER,
        "--label",
        "langbot.box=true",
        "--label",
        "langbot.session_id=theirs",
        &engine.image,
        "/bin/sh",
        "-c",
        sleep,
    ]);
    let steady = Daemon::start(&engine.daemon_settings()).await;
    let counter =
        "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.1; done";
    stdout_of(&steady.client, "steady", "true").await;
    let token = marker("counter");
    keep_script(&steady, "steady", &format!("{counter} # {token}"), &token).await;
    let box_of_steady = listed(&steady).await.pop_first().expect("one box");
    let before = [same(engine, &box_of_steady), same(engine, OTHER)];
    let mut counted = 0;

    let mut directory = None;
    let lasting = marker("lasting");
    let mut box_of_mortal: Option<(String, Same)> = None;
    for round in 0..rounds() {
        let mortal = match directory.take() {
            None => Daemon::start(&engine.daemon_settings()).await,
            Some(directory) => Daemon::start_in(directory, &engine.daemon_settings()).await,
        };
        if box_of_mortal.is_none() {
            stdout_of(&mortal.client, "mortal", "true").await;
            keep(&mortal, "mortal", &lasting).await;
            let name = listed(&mortal).await.pop_first().expect("one box");
            let now = same(engine, &name);
            box_of_mortal = Some((name, now));
        }
        if round % 4 == 3 {
            // Killed at different moments of a start.
            let client = mortal.client.clone();
            let start = tokio::spawn(async move { exec(&client, "young", "true").await });
            tokio::time::sleep(Duration::from_millis(u64::from(round) * 6)).await;
            directory = Some(mortal.kill().await);
            let _ = start.await;
            continue;
        }
        // One that was killed half-way has its session, or nothing was left of it.
        let gone = answered("a delete", mortal.client.delete_session(&id("young"))).await;
        if let Err(error) = gone {
            assert_eq!(error.code(), ErrorCode::SessionNotFound, "{error}");
        }
        stdout_of(&mortal.client, "mortal", "true").await;
        // Leftovers of earlier daemons are removed with the first box of this one.
        if is_looked_at(round) {
            stdout_of(&mortal.client, "young", "true").await;
            engine_has_only_boxes_of(engine, &[&steady, &mortal], &[OTHER]).await;
            let now = [same(engine, &box_of_steady), same(engine, OTHER)];
            assert_eq!(now, before, "in round {round}");
            let count = count(&steady).await;
            assert!(count > counted, "{count} after {counted} in round {round}");
            counted = count;
            let (name, first) = box_of_mortal.as_ref().expect("it has one");
            assert!(listed(&mortal).await.contains(name), "a box was lost");
            assert_eq!(same(engine, name), *first, "in round {round}");
            assert_eq!(kept(&mortal, "mortal").await, ProcessStatus::Running);
            assert_eq!(running(&lasting), 1, "a process was started again");
        }
        directory = Some(mortal.kill().await);
    }
    // Its boxes wait for the next daemon, and other daemons do not remove them.
    assert_eq!(running(&lasting), 1);
    stdout_of(&steady.client, "another", "true").await;
    assert_eq!(running(&lasting), 1, "another daemon has touched it");
    let directory = directory.expect("the last one's");
    let last = Daemon::start_in(Arc::clone(&directory), &engine.daemon_settings()).await;
    stdout_of(&last.client, "mortal", "true").await;
    let (name, first) = box_of_mortal.expect("it has one");
    assert_eq!(same(engine, &name), first);
    assert_eq!(kept(&last, "mortal").await, ProcessStatus::Running);
    last.stop().await;
    until("processes of the last daemon end", || {
        running(&lasting) == 0
    })
    .await;
    let left = entries_of_boxes(&directory);
    assert!(left.is_empty(), "directories were left: {left:?}");

    assert_eq!(kept(&steady, "steady").await, ProcessStatus::Running);
    assert_eq!([same(engine, &box_of_steady), same(engine, OTHER)], before);
    steady.stop().await;
    engine_has_only_boxes_of(engine, &[], &[OTHER]).await;
}

fn entries_of_boxes(directory: &tempfile::TempDir) -> Vec<std::path::PathBuf> {
    let state = directory.path().join("state");
    [state.join("boxes"), state.join("run/boxes")]
        .iter()
        .flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .collect()
}
