//! A daemon is killed at some moment, and the next one goes on with its sessions.

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_api::{ErrorCode, MountMode, MountSpec};
use boxwood_backend::{Backend as _, Progress, StartRecorder};
use boxwood_ledger::{Ledger, Opened};
use boxwood_policy::Origin;
use boxwood_session::{
    Backends, FileCall, Lost, Recovery, SessionError, Sessions, Settings, ShutdownBoxes,
};
use boxwood_test_support::{FakeBackend, Fault, Point, SmallDisk, admission_for};

use super::machine::Machine;
use crate::{eventually, id, in_time, request, request_with};

fn gone_because(outcome: Result<(), SessionError>) -> String {
    match outcome {
        Err(error @ SessionError::Gone { .. }) => {
            assert_eq!(error.code(), ErrorCode::SessionGone);
            match error {
                SessionError::Gone { why, .. } => why,
                other => panic!("{other}"),
            }
        }
        Err(error) => panic!("{error}"),
        Ok(()) => panic!("the session is there"),
    }
}

#[tokio::test]
async fn sessions_are_adopted_by_the_next_daemon() {
    let mut machine = Machine::new();
    let (daemon, recovery) = machine.daemon().await;
    assert_eq!(recovery, Recovery::default());
    let one = daemon.made("one").await;
    let two = daemon.made("two").await;
    daemon.says("one", "echo kept > file").await;

    let (mut daemon, mut recovery) = machine.restart(daemon).await;
    for _ in 0..3 {
        assert_eq!((recovery.adopted, recovery.rebuilt), (2, false));
        assert_eq!(recovery.lost, []);
        for before in [&one, &two] {
            let found = daemon.sessions.detail(&before.session_id).expect("there");
            let found = found.session;
            assert!(found.adopted_at.is_some());
            assert_eq!(found.incarnation, before.incarnation);
            assert_eq!(found.created_at, before.created_at);
            assert_eq!(found.backend_session_id, before.backend_session_id);
        }
        assert_eq!(daemon.says("one", "cat file").await, "kept\n");
        daemon.assert_all_agree(&machine.host).await;
        (daemon, recovery) = machine.restart(daemon).await;
    }
    let three = daemon.made("three").await;
    assert!(three.incarnation > two.incarnation.max(one.incarnation));
}

#[tokio::test]
async fn an_adopted_session_fits_the_same_requests() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    let spec_of =
        |memory| request_with("s", "", move |request| request.memory_mb = Some(memory)).spec;
    let made = in_time(daemon.sessions.get_or_create(spec_of(300))).await;
    let made = made.expect("a session");
    let hash = daemon.sessions.detail(&id("s")).expect("there").config_hash;
    let (daemon, _) = machine.restart(daemon).await;
    let same = in_time(daemon.sessions.get_or_create(spec_of(300))).await;
    assert_eq!(same.expect("it fits").incarnation, made.incarnation);
    let detail = daemon.sessions.detail(&id("s")).expect("there");
    assert_eq!(detail.config_hash, hash);
    let other = in_time(daemon.sessions.get_or_create(spec_of(301))).await;
    let other = other.expect_err("another box");
    assert_eq!(other.code(), ErrorCode::SessionConflict);
}

#[tokio::test]
async fn a_session_whose_box_died_between_daemons_is_gone_with_the_reason() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    let made = daemon.made("s").await;
    machine.kill(daemon);
    machine.host.box_of(&id("s")).expect("a box").die();
    let (mut daemon, recovery) = machine.daemon().await;
    let why = "its box died while no daemon ran";
    let lost = Lost {
        session: id("s"),
        incarnation: made.incarnation,
        why: why.to_owned(),
    };
    assert_eq!((recovery.adopted, recovery.lost), (0, vec![lost]));
    // How it ended is known to every later daemon, too.
    for _ in 0..2 {
        let meant = daemon.sessions.expecting(Some(made.incarnation));
        assert_eq!(gone_because(meant.detail(&id("s")).map(drop)), why);
        let plain = daemon.sessions.detail(&id("s")).expect_err("not there");
        assert_eq!(plain.code(), ErrorCode::SessionNotFound);
        daemon.assert_all_agree(&machine.host).await;
        (daemon, _) = machine.restart(daemon).await;
    }
    let anew = daemon.made("s").await;
    assert!(anew.incarnation > made.incarnation);
    let meant = daemon.sessions.expecting(Some(made.incarnation));
    assert_eq!(gone_because(meant.detail(&id("s")).map(drop)), why);
}

#[tokio::test]
async fn a_removed_ledger_is_rebuilt_from_running_boxes() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    let made = daemon.made("s").await;
    machine.kill(daemon);
    machine.path = machine.state.path().join("nothing-there.db");
    let (daemon, recovery) = machine.daemon().await;
    assert_eq!((recovery.adopted, recovery.rebuilt), (1, true));
    let found = daemon.sessions.detail(&id("s")).expect("there").session;
    assert_eq!(found.incarnation, made.incarnation);
    daemon.assert_all_agree(&machine.host).await;
    assert!(daemon.made("t").await.incarnation > made.incarnation);
    let (daemon, recovery) = machine.restart(daemon).await;
    assert_eq!((recovery.adopted, recovery.rebuilt), (2, false));
    daemon.assert_all_agree(&machine.host).await;
}

#[tokio::test]
async fn a_daemon_killed_anywhere_in_a_creation_leaves_a_session_or_nothing() {
    for point in [
        Point::BeforeRecord,
        Point::AfterRecord,
        Point::Made,
        Point::BeforeRemember,
        Point::AfterRemember,
    ] {
        let mut machine = Machine::new();
        let (daemon, _) = machine.daemon().await;
        let other = daemon.made("other").await;
        machine.host.fault(point, Fault::Crashes);
        let sessions = daemon.sessions.clone();
        let asking =
            tokio::spawn(async move { sessions.get_or_create(request("s", "").spec).await });
        in_time(daemon.backend.killed()).await;
        asking.abort();
        let (daemon, recovery) = machine.restart(daemon).await;
        // The client got no response, so the session is not reported as lost.
        assert_eq!(recovery.lost, [], "{point:?}");
        let exists = daemon.sessions.detail(&id("s")).is_ok();
        assert_eq!(exists, point == Point::AfterRemember, "{point:?}");
        daemon.assert_all_agree(&machine.host).await;
        assert_eq!(daemon.says("s", "echo works").await, "works\n", "{point:?}");
        let kept = daemon.sessions.detail(&id("other")).expect("there").session;
        assert_eq!(kept.incarnation, other.incarnation, "{point:?}");
    }
}

#[tokio::test]
async fn a_daemon_killed_anywhere_in_a_removal_leaves_a_session_or_nothing() {
    for point in [Point::BeforeStop, Point::Stopped] {
        let mut machine = Machine::new();
        let (daemon, _) = machine.daemon().await;
        daemon.made("s").await;
        machine.host.fault(point, Fault::Crashes);
        let sessions = daemon.sessions.clone();
        let deleting = tokio::spawn(async move { sessions.delete(&id("s"), "asked").await });
        in_time(daemon.backend.killed()).await;
        deleting.abort();
        let (daemon, _) = machine.restart(daemon).await;
        let exists = daemon.sessions.detail(&id("s")).is_ok();
        assert_eq!(exists, point == Point::BeforeStop, "{point:?}");
        daemon.assert_all_agree(&machine.host).await;
    }
}

#[tokio::test]
async fn a_failed_adoption_is_retried() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    for session in ["a", "b", "c"] {
        daemon.made(session).await;
    }
    machine.kill(daemon);
    machine.host.fault(Point::BeforeAdopt, Fault::Fails);
    let (daemon, recovery) = machine.daemon().await;
    assert_eq!((recovery.adopted, recovery.lost.len()), (3, 0));
    daemon.assert_all_agree(&machine.host).await;
}

#[tokio::test]
async fn a_box_that_does_not_answer_does_not_delay_the_others() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    for session in ["a", "b"] {
        daemon.made(session).await;
    }
    machine.kill(daemon);
    machine.host.fault(Point::BeforeAdopt, Fault::Hangs);
    let (daemon, recovery) = machine.daemon().await;
    assert_eq!((recovery.adopted, recovery.lost.len()), (1, 1));
    let why = &recovery.lost[0].why;
    assert!(why.contains("did not answer"), "{why}");
    daemon.assert_all_agree(&machine.host).await;
}

#[tokio::test]
async fn of_two_boxes_of_one_session_the_later_one_is_adopted() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    let first = daemon.made("s").await;
    machine.kill(daemon);
    // A second box of a session with a later incarnation.
    let backend = machine.host.backend();
    let left = backend.left_running().await;
    let adopted = backend.adopt(&left[0]).await.expect("it is there");
    let record: serde_json::Value = serde_json::from_slice(&adopted.record).expect("JSON");
    let (progress, witness) = (Progress::silent(), StartRecorder::none());
    let spec = request("s", "").spec;
    let second = backend.start(&spec, &progress, &witness).await;
    let second = second.expect("it starts");
    let mut later = record;
    later["incarnation"] = (first.incarnation + 5).into();
    let later = serde_json::to_vec(&later).expect("JSON");
    second.remember(&later).await.expect("remembered");
    assert_eq!(machine.host.running_boxes().len(), 2);
    machine.host.crash();
    drop((adopted, second, backend));

    let (daemon, recovery) = machine.daemon().await;
    assert_eq!(recovery.adopted, 1);
    let found = daemon.sessions.detail(&id("s")).expect("there").session;
    assert_eq!(found.incarnation, first.incarnation + 5);
    assert_eq!(recovery.lost.len(), 1);
    assert_eq!(recovery.lost[0].incarnation, first.incarnation);
    daemon.assert_all_agree(&machine.host).await;
    assert!(daemon.made("t").await.incarnation > found.incarnation);
}

#[tokio::test]
async fn a_request_for_one_incarnation_never_gets_another() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    let first = daemon.made("s").await.incarnation;
    let meant = daemon.sessions.expecting(Some(first));
    in_time(meant.exec(request("s", "true")))
        .await
        .expect("it is the one");
    in_time(meant.delete(&id("s"), "enough of it"))
        .await
        .expect("it is the one");

    // No session is created for a request for an incarnation that is gone.
    let starts = daemon.backend.starts();
    let why = "enough of it";
    assert_eq!(
        gone_because(in_time(meant.exec(request("s", "true"))).await.map(drop)),
        why
    );
    assert_eq!(daemon.backend.starts(), starts);

    let second = daemon.made("s").await.incarnation;
    let stat = || FileCall::Stat {
        path: "/workspace".to_owned(),
        follow: true,
    };
    let outcomes = [
        in_time(meant.get_or_create(request("s", "").spec))
            .await
            .map(drop),
        in_time(meant.exec(request("s", "true"))).await.map(drop),
        in_time(meant.exec_existing(request("s", "true")))
            .await
            .map(drop),
        in_time(meant.file(&id("s"), stat())).await.map(drop),
        in_time(meant.delete(&id("s"), "wrong one")).await,
        meant.detail(&id("s")).map(drop),
        meant.processes(&id("s")).map(drop),
    ];
    for outcome in outcomes {
        assert_eq!(gone_because(outcome), why);
    }
    let now = daemon.sessions.expecting(Some(second));
    in_time(now.exec(request("s", "true")))
        .await
        .expect("it is the one");
    let never = daemon.sessions.expecting(Some(second + 1000));
    let why = gone_because(never.detail(&id("s")).map(drop));
    assert!(why.ends_with("never existed"), "{why}");
}

#[tokio::test]
async fn a_shutdown_keeps_the_selected_boxes() {
    for (boxes, kept) in [
        (ShutdownBoxes::Stop, &[][..]),
        (ShutdownBoxes::StopEphemeral, &["lasting"][..]),
        (ShutdownBoxes::Keep, &["lasting", "passing"][..]),
    ] {
        let mut machine = Machine::new();
        let (daemon, _) = machine.daemon().await;
        let lasting = request_with("lasting", "", |request| request.persistent = Some(true));
        let made = in_time(daemon.sessions.get_or_create(lasting.spec)).await;
        made.expect("a session");
        daemon.made("passing").await;
        in_time(daemon.sessions.shutdown(boxes)).await;
        assert_eq!(machine.host.running_boxes().len(), kept.len(), "{boxes:?}");
        // Later requests have no effect on detached boxes.
        let late = in_time(daemon.sessions.delete(&id("lasting"), "late")).await;
        late.expect_err("too late");
        let late = in_time(daemon.sessions.exec(request("passing", "true"))).await;
        late.expect_err("too late");
        drop(daemon);
        assert_eq!(machine.host.running_boxes().len(), kept.len(), "{boxes:?}");
        // The ledger was closed, so the next one opens the same files.
        let (daemon, recovery) = machine.daemon().await;
        assert_eq!(
            (recovery.adopted, recovery.lost),
            (kept.len(), vec![]),
            "{boxes:?}"
        );
        let ids: Vec<_> = daemon
            .sessions
            .list()
            .into_iter()
            .map(|it| it.session_id)
            .collect();
        assert_eq!(
            ids,
            kept.iter().map(|it| id(it)).collect::<Vec<_>>(),
            "{boxes:?}"
        );
        daemon.assert_all_agree(&machine.host).await;
    }
}

#[tokio::test]
async fn boxes_that_end_with_their_daemon_are_stopped_and_recorded() {
    let state = tempfile::tempdir().expect("a directory");
    let path = state.path().join("ledger.db");
    let (ledger, _) = Ledger::open(&path).await.expect("a ledger");
    let backend = FakeBackend::new();
    let backends = Backends::only(Arc::clone(&backend) as _);
    let (sessions, _) = Sessions::recover(backends, Settings::default(), ledger.clone()).await;
    let kept = in_time(sessions.get_or_create(request("kept", "").spec)).await;
    kept.expect("a session");
    in_time(sessions.shutdown(ShutdownBoxes::Keep)).await;
    assert!(backend.boxes().is_empty());

    // The same if the daemon was killed before it could record that.
    let (ledger, _) = Ledger::open(&path).await.expect("a ledger");
    let backends = Backends::only(FakeBackend::new() as _);
    let (sessions, _) = Sessions::recover(backends, Settings::default(), ledger.clone()).await;
    let made = in_time(sessions.get_or_create(request("s", "").spec)).await;
    let incarnation = made.expect("a session").incarnation;
    ledger.close().await;
    let (ledger, _) = Ledger::open(&path).await.expect("a ledger");
    let backends = Backends::only(FakeBackend::new() as _);
    let (next, recovery) = Sessions::recover(backends, Settings::default(), ledger).await;
    assert_eq!(recovery.lost.len(), 1, "{recovery:?}");
    let meant = next.expecting(Some(incarnation));
    let why = gone_because(meant.detail(&id("s")).map(drop));
    assert_eq!(why, "its box ended with the daemon that created it");
}

#[test]
fn a_full_state_directory_stops_new_sessions_and_nothing_else() {
    let name = "restart::recovery::a_full_state_directory_stops_new_sessions_and_nothing_else";
    SmallDisk::run(name, async |disk| {
        let mut machine = Machine::new();
        machine.path = disk.path().join("ledger.db");
        let (daemon, _) = machine.daemon().await;
        let lives = daemon.made("lives").await;
        daemon.made("goes").await;
        disk.fill();
        let mut made = 0;
        let refused = loop {
            let session = format!("new-{made}");
            let asking = daemon.sessions.get_or_create(request(&session, "").spec);
            match in_time(asking).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 500, "the disk never filled");
        };
        assert_eq!(refused.code(), ErrorCode::Capacity);
        assert!(refused.hint().is_some());
        let text = refused.to_string();
        assert!(text.contains(&disk.path().display().to_string()), "{text}");
        assert_eq!(
            machine.host.running_boxes().len(),
            made + 2,
            "the failed start left a box"
        );

        assert_eq!(daemon.says("lives", "echo on").await, "on\n");
        let deleted = in_time(daemon.sessions.delete(&id("goes"), "asked")).await;
        deleted.expect("it goes");
        // The next daemon adopts the sessions although the disk is full.
        machine.host.crash();
        daemon.ledger.close().await;
        drop(daemon);
        let (daemon, recovery) = machine.daemon().await;
        assert_eq!(recovery.adopted, made + 1);
        assert_eq!(daemon.says("lives", "echo on").await, "on\n");
        let found = daemon.sessions.detail(&id("lives")).expect("there").session;
        assert_eq!(found.incarnation, lives.incarnation);

        disk.make_room();
        daemon.made("again").await;
        daemon.assert_all_agree(&machine.host).await;
    });
}

#[tokio::test]
async fn a_damaged_ledger_costs_no_session() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    daemon.made("s").await;
    machine.kill(daemon);
    // The ledger could be restored from its log alone.
    let log = format!("{}-wal", machine.path.display());
    std::fs::remove_file(log).expect("removed");
    std::fs::write(&machine.path, "no ledger at all").expect("written");
    let (ledger, opened) = Ledger::open(&machine.path).await.expect("a ledger");
    assert!(matches!(opened, Opened::Damaged { .. }), "{opened:?}");
    let backends = Backends::only(machine.host.backend() as _);
    let (sessions, recovery) = Sessions::recover(backends, Settings::default(), ledger).await;
    assert_eq!((recovery.adopted, recovery.rebuilt), (1, true));
    in_time(sessions.exec(request("s", "true")))
        .await
        .expect("it runs");
}

#[tokio::test]
async fn the_death_of_an_adopted_box_closes_its_session() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    let made = daemon.made("s").await;
    let (daemon, _) = machine.restart(daemon).await;
    assert!(daemon.backend.kill_box(&id("s")));
    let is_gone = || daemon.sessions.list().is_empty();
    eventually("the session goes with its box", is_gone).await;
    let meant = daemon.sessions.expecting(Some(made.incarnation));
    eventually("its end is known", || {
        let why = gone_because(meant.detail(&id("s")).map(drop));
        why == "its box died"
    })
    .await;
}

#[tokio::test]
async fn added_mounts_are_known_to_the_next_daemon() {
    let shelf = tempfile::tempdir().expect("a directory");
    let package = |name: &str| {
        let path = shelf.path().join(name);
        std::fs::create_dir_all(&path).expect("made");
        MountSpec {
            host_path: path.display().to_string(),
            mount_path: format!("/workspace/.skills/{name}"),
            mode: MountMode::Ro,
        }
    };
    let by_platform = |mounts: &[MountSpec]| {
        let mounts = mounts.to_vec();
        let asking = admission_for(Origin::LangBotPlatform, &[], "s", "", |request| {
            request.extra_mounts = mounts;
        });
        asking.expect("policy allows the test's request").spec
    };
    let (one, two) = (package("one"), package("two"));
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    for mounts in [&[one.clone()][..], &[two.clone()][..]] {
        let made = in_time(daemon.sessions.get_or_create(by_platform(mounts))).await;
        made.expect("a session");
    }
    assert_eq!(daemon.backend.live_mounts(), 1);
    let (daemon, _) = machine.restart(daemon).await;
    let both = [one.clone(), two.clone()];
    let found = daemon.sessions.detail(&id("s")).expect("there").session;
    assert_eq!(found.extra_mounts, both);
    // The mounts are unchanged, so none is added.
    let recovered = in_time(daemon.sessions.get_or_create(by_platform(&both))).await;
    assert_eq!(recovered.expect("it fits").incarnation, found.incarnation);
    assert_eq!(daemon.backend.live_mounts(), 0);

    // Another directory at the same path is a different one.
    let host_path = PathBuf::from(&two.host_path);
    std::fs::rename(&host_path, shelf.path().join("moved")).expect("moved");
    let (daemon, _) = machine.restart(daemon).await;
    package("two");
    let recovered = in_time(daemon.sessions.get_or_create(by_platform(&both))).await;
    recovered.expect("it takes the new one");
    assert_eq!(daemon.backend.live_mounts(), 1);
}
