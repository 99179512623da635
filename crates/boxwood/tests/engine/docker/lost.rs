//! Docker's daemon stops under load. Every request gets a response, nothing leaks, and boxes start again when the engine
//! is back.

use std::time::{Duration, Instant};

use boxwood_api::{ErrorCode, ProcessStatus, Reason};
use rustix::process::Signal;

use crate::boxes::{
    Running, engine_has_only_boxes_of, exec, id, is_refused_as_unavailable, keep, kept, listed,
    stdout_of,
};
use crate::daemon::Daemon;
use crate::dockerd::Dockerd;
use crate::traces::{cgroups_of, marker, running};
use crate::waiting::{SETTLED, answered, until};

const SESSIONS: [&str; 4] = ["one", "two", "three", "four"];
/// Limit of a status request, which does not use the engine.
const AT_ONCE: Duration = Duration::from_secs(5);

struct Load {
    calls: Vec<Running>,
    markers: Vec<String>,
    process: String,
    ids: Vec<String>,
}

/// Commands in four sessions, and a managed process in the first.
async fn load(daemon: &Daemon, dockerd: &Dockerd, test: &str) -> Load {
    let (mut calls, mut markers) = (Vec::new(), Vec::new());
    for session in SESSIONS {
        let marker = marker(&format!("{test}-{session}"));
        calls.push(Running::begin(daemon, session, &marker).await);
        markers.push(marker);
    }
    let process = marker(&format!("{test}-process"));
    keep(daemon, SESSIONS[0], &process).await;
    let names = listed(daemon).await;
    let ids = names.iter().map(|name| {
        let inspected = dockerd.engine.inspect(name);
        inspected["Id"].as_str().expect("an id").to_owned()
    });
    let ids: Vec<String> = ids.collect();
    assert!(
        ids.iter().all(|id| !cgroups_of(id).is_empty()),
        "a box has cgroups that can be found"
    );
    Load {
        calls,
        markers,
        process,
        ids,
    }
}

async fn status_comes_at_once(daemon: &Daemon) {
    let begin = Instant::now();
    let status = answered("a status", daemon.client.status()).await;
    status.expect("a status");
    assert!(begin.elapsed() < AT_ONCE, "it took {:?}", begin.elapsed());
}

/// An unavailable engine is probed again after a few seconds.
async fn serves_again(daemon: &Daemon) {
    let begin = Instant::now();
    while let Err(error) = exec(&daemon.client, SESSIONS[0], "true").await {
        assert_eq!(error.code(), ErrorCode::BackendUnavailable, "{error}");
        assert!(begin.elapsed() < SETTLED, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// At the end: the engine works again, and nothing is left.
async fn all_is_well(daemon: Daemon, dockerd: &Dockerd, load: &[String], markers: &[String]) {
    serves_again(&daemon).await;
    for session in SESSIONS {
        assert_eq!(
            stdout_of(&daemon.client, session, "echo back").await,
            "back\n"
        );
    }
    engine_has_only_boxes_of(&dockerd.engine, &[&daemon], &[]).await;
    for session in SESSIONS {
        let deleted = answered("a delete", daemon.client.delete_session(&id(session))).await;
        deleted.expect("it is deleted");
    }
    engine_has_only_boxes_of(&dockerd.engine, &[&daemon], &[]).await;
    until("directories of boxes are gone", || {
        daemon.directories_of_boxes().is_empty()
    })
    .await;
    for id in load {
        until("cgroups are gone", || cgroups_of(id).is_empty()).await;
    }
    for marker in markers {
        until("processes are gone", || running(marker) == 0).await;
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_docker_that_is_stopped_takes_its_boxes_and_brings_service_back() {
    let mut dockerd = Dockerd::start().await;
    let daemon = Daemon::start(&dockerd.engine.daemon_settings()).await;
    let load = load(&daemon, &dockerd, "stopped").await;

    dockerd.signal(Signal::TERM);
    // A request for a new box while the engine stops gets a response as well.
    let late = exec(&daemon.client, "late", "true").await;
    if let Err(error) = late {
        assert_eq!(error.code(), ErrorCode::BackendUnavailable, "{error}");
    }
    dockerd.ended().await;
    for call in load.calls {
        call.ends_by(&[Reason::BoxGone]).await;
    }
    for marker in load.markers.iter().chain([&load.process]) {
        until("processes end with their boxes", || running(marker) == 0).await;
    }
    status_comes_at_once(&daemon).await;
    is_refused_as_unavailable(&daemon.client, "one").await;
    is_refused_as_unavailable(&daemon.client, "five").await;
    assert!(listed(&daemon).await.is_empty(), "phantom sessions");

    dockerd.start_again().await;
    all_is_well(daemon, &dockerd, &load.ids, &load.markers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_serve_on_while_docker_is_killed() {
    let mut dockerd = Dockerd::start().await;
    let daemon = Daemon::start(&dockerd.engine.daemon_settings()).await;
    let mut load = load(&daemon, &dockerd, "killed").await;

    dockerd.signal(Signal::KILL);
    dockerd.ended().await;
    for session in SESSIONS {
        assert_eq!(
            stdout_of(&daemon.client, session, "echo here").await,
            "here\n"
        );
    }
    assert!(load.calls.iter().all(Running::goes_on), "a call has ended");
    assert_eq!(kept(&daemon, "one").await, ProcessStatus::Running);
    status_comes_at_once(&daemon).await;
    is_refused_as_unavailable(&daemon.client, "five").await;

    // The processes of a box that is deleted meanwhile end at once. Its container is removed later.
    let deleted = answered("a delete", daemon.client.delete_session(&id("one"))).await;
    deleted.expect("it is deleted");
    for marker in [&load.markers[0], &load.process] {
        assert_eq!(running(marker), 0, "a deleted session runs on");
    }
    load.calls.remove(0).ends_by(&[Reason::Cancelled]).await;

    dockerd.start_again().await;
    engine_has_only_boxes_of(&dockerd.engine, &[&daemon], &[]).await;
    // Docker ends the containers of a killed daemon unless `live-restore` is set.
    for call in load.calls {
        call.ends_by(&[Reason::BoxGone]).await;
    }
    all_is_well(daemon, &dockerd, &load.ids, &load.markers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_is_gone_is_an_engine_that_is_away() {
    let dockerd = Dockerd::start().await;
    let daemon = Daemon::start(&dockerd.engine.daemon_settings()).await;
    let mut load = load(&daemon, &dockerd, "socket").await;

    let hidden = dockerd.socket().with_extension("hidden");
    std::fs::rename(dockerd.socket(), &hidden).expect("it is moved");
    is_refused_as_unavailable(&daemon.client, "five").await;
    status_comes_at_once(&daemon).await;
    assert_eq!(
        stdout_of(&daemon.client, "two", "echo here").await,
        "here\n"
    );
    let deleted = answered("a delete", daemon.client.delete_session(&id("one"))).await;
    deleted.expect("it is deleted");
    assert_eq!(running(&load.markers[0]), 0, "a deleted session runs on");
    load.calls.remove(0).ends_by(&[Reason::Cancelled]).await;
    assert!(load.calls.iter().all(Running::goes_on), "a call has ended");

    std::fs::rename(&hidden, dockerd.socket()).expect("it is moved back");
    engine_has_only_boxes_of(&dockerd.engine, &[&daemon], &[]).await;
    for session in &SESSIONS[1..] {
        let deleted = answered("a delete", daemon.client.delete_session(&id(session))).await;
        deleted.expect("it is deleted");
    }
    for call in load.calls {
        call.ends_by(&[Reason::Cancelled]).await;
    }
    all_is_well(daemon, &dockerd, &load.ids, &load.markers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_does_not_respond_delays_only_its_own_requests() {
    let dockerd = Dockerd::start().await;
    let daemon = Daemon::start(&dockerd.engine.daemon_settings()).await;
    let mut load = load(&daemon, &dockerd, "silent").await;

    dockerd.signal(Signal::STOP);
    status_comes_at_once(&daemon).await;
    assert_eq!(
        stdout_of(&daemon.client, "two", "echo here").await,
        "here\n"
    );
    let first = id("one");
    let (refused, deleted) = tokio::join!(
        is_refused_as_unavailable(&daemon.client, "five"),
        answered("a delete", daemon.client.delete_session(&first)),
    );
    let () = refused;
    deleted.expect("it is deleted");
    assert_eq!(running(&load.markers[0]), 0, "a deleted session runs on");
    load.calls.remove(0).ends_by(&[Reason::Cancelled]).await;
    // From now on the daemon knows that the engine is unavailable, and no request waits for it.
    status_comes_at_once(&daemon).await;
    let begin = Instant::now();
    let deleted = answered("a delete", daemon.client.delete_session(&id("two"))).await;
    deleted.expect("it is deleted");
    assert!(begin.elapsed() < AT_ONCE, "it took {:?}", begin.elapsed());
    load.calls.remove(0).ends_by(&[Reason::Cancelled]).await;

    dockerd.signal(Signal::CONT);
    // It carries out earlier requests that are cancelled by now.
    engine_has_only_boxes_of(&dockerd.engine, &[&daemon], &[]).await;
    for session in &SESSIONS[2..] {
        let deleted = answered("a delete", daemon.client.delete_session(&id(session))).await;
        deleted.expect("it is deleted");
    }
    for call in load.calls {
        call.ends_by(&[Reason::Cancelled]).await;
    }
    all_is_well(daemon, &dockerd, &load.ids, &load.markers).await;
}
