//! Two daemons on one engine, beside a box of the seed's own runtime. One of them dies a hundred times.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::ProcessStatus;

use crate::boxes::{engine_has_only_boxes_of, exec, keep, keep_script, kept, listed, says};
use crate::daemon::Daemon;
use crate::dockerd::Dockerd;
use crate::engine::Engine;
use crate::traces::{began, running, word};
use crate::waiting::until;

const ROUNDS: u32 = 100;
const SEEDS: &str = "seed-box";

/// What must not change of somebody else's box.
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
    let text = says(&steady.client, "steady", "cat /workspace/count").await;
    // Between its two steps a write has emptied the file.
    text.trim().parse().unwrap_or_default()
}

/// Only this many rounds in, so that the others are cheap.
fn is_looked_at(round: u32) -> bool {
    round.is_multiple_of(10) || round == ROUNDS - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_deaths_of_one_daemon_touch_nobody_else_and_leave_nothing() {
    let dockerd = Dockerd::start().await;
    let engine = &dockerd.engine;
    let sleep = "while :; do sleep 1; done";
    engine.run(&[
        "run",
        "--detach",
        "--network",
        "none",
        "--name",
        SEEDS,
        "--label",
        "langbot.box=true",
        "--label",
        "langbot.session_id=theirs",
        &engine.image,
        "/bin/sh",
        "-c",
        sleep,
    ]);
    let steady = Daemon::start(&engine.wanted()).await;
    let counter =
        "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.1; done";
    says(&steady.client, "steady", "true").await;
    let token = word("counter");
    keep_script(&steady, "steady", &format!("{counter} # {token}"), &token).await;
    let box_of_steady = listed(&steady).await.pop_first().expect("one box");
    let before = [same(engine, &box_of_steady), same(engine, SEEDS)];
    let mut counted = 0;

    let mut directory = None;
    let lost = word("lost");
    for round in 0..ROUNDS {
        let mortal = match directory.take() {
            None => Daemon::start(&engine.wanted()).await,
            Some(directory) => Daemon::start_in(directory, &engine.wanted()).await,
        };
        if round % 4 == 3 {
            // Killed at some moment of a start, another one every time.
            let client = mortal.client.clone();
            let start = tokio::spawn(async move { exec(&client, "mortal", "true").await });
            tokio::time::sleep(Duration::from_millis(u64::from(round) * 6)).await;
            directory = Some(mortal.kill().await);
            let _ = start.await;
            continue;
        }
        keep_or_exec(&mortal, round, &lost).await;
        // What earlier lives left is gone now, and no more than that.
        engine_has_only_boxes_of(engine, &[&steady, &mortal], &[SEEDS]).await;
        assert_eq!(listed(&mortal).await.len(), 1, "a box was lost");
        if is_looked_at(round) {
            let now = [same(engine, &box_of_steady), same(engine, SEEDS)];
            assert_eq!(now, before, "in round {round}");
            let count = count(&steady).await;
            assert!(count > counted, "{count} after {counted} in round {round}");
            counted = count;
        }
        directory = Some(mortal.kill().await);
    }
    // Its boxes end with it, whether or not it comes again.
    engine_has_only_boxes_of(engine, &[&steady], &[SEEDS]).await;
    until("processes of the dead daemon end", || running(&lost) == 0).await;
    let directory = directory.expect("the last one's");
    let last = Daemon::start_in(Arc::clone(&directory), &engine.wanted()).await;
    says(&last.client, "mortal", "true").await;
    assert_eq!(
        last.directories_of_boxes().len(),
        1,
        "directories were left"
    );

    assert_eq!(kept(&steady, "steady").await, ProcessStatus::Running);
    assert_eq!([same(engine, &box_of_steady), same(engine, SEEDS)], before);
    last.stop().await;
    steady.stop().await;
    engine_has_only_boxes_of(engine, &[], &[SEEDS]).await;
}

/// Mostly a command, now and then a process that would live on.
async fn keep_or_exec(mortal: &Daemon, round: u32, word: &str) {
    says(&mortal.client, "mortal", "true").await;
    if round.is_multiple_of(10) {
        until("earlier ones are gone", || running(word) == 0).await;
        keep(mortal, "mortal", word).await;
    }
}
