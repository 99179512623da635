//! Boxes that were created with an earlier configuration.

use boxwood_api::SpecRequest;
use boxwood_policy::{Admission, PolicyRules, ProfileConfig, Profiles};
use boxwood_session::SessionError;
use boxwood_test_support::admission_under;

use super::{daemon, eventually, id, in_time};

/// The rules of a daemon whose default profile gives this much memory.
fn rules(memory_mb: u64) -> PolicyRules {
    let table = ProfileConfig {
        memory_mb: Some(memory_mb),
        ..ProfileConfig::default()
    };
    let tables = [("team".to_owned(), table)].into();
    PolicyRules {
        profiles: Profiles::new(&tables, Some("team")).expect("profiles"),
        ..PolicyRules::default()
    }
}

fn request(memory_mb: u64, cmd: &str, change: impl FnOnce(&mut SpecRequest)) -> Admission {
    admission_under(&rules(memory_mb), "s", cmd, change).expect("admitted")
}

#[tokio::test]
async fn an_idle_box_is_recreated() {
    let daemon = daemon();
    let made = |memory_mb| {
        daemon
            .sessions
            .get_or_create(request(memory_mb, "", |_| {}).spec)
    };
    let first = in_time(made(256)).await.expect("made");
    let hash = || daemon.sessions.detail(&id("s")).expect("there").config_hash;
    let before = hash();
    let same = in_time(made(256)).await.expect("there");
    assert_eq!(same.incarnation, first.incarnation);
    let renewed = in_time(made(384)).await.expect("made anew");
    assert_eq!((renewed.incarnation, renewed.memory_mb), (2, 384));
    assert_ne!(hash(), before);
    assert_eq!(daemon.backend.boxes().len(), 1, "the old one is gone");
    // Once, and not with every request.
    assert_eq!(in_time(made(384)).await.expect("there").incarnation, 2);
}

#[tokio::test]
async fn a_busy_box_is_used_as_it_is() {
    let daemon = daemon();
    let nap = super::unique_nap();
    let sessions = daemon.sessions.clone();
    let long = request(256, &format!("sleep {nap}"), |request| {
        request.timeout_sec = Some(60);
    });
    let running = tokio::spawn(async move { sessions.exec(long).await });
    eventually("the command", || super::is_asleep(&nap)).await;
    let beside = in_time(daemon.sessions.exec(request(384, "echo hi", |_| {})));
    assert_eq!(beside.await.expect("it runs").stdout, "hi\n");
    let info = &daemon.sessions.list()[0];
    assert_eq!((info.incarnation, info.memory_mb), (1, 256));
    running.abort();
}

#[tokio::test]
async fn a_field_that_the_caller_named_is_a_conflict() {
    let daemon = daemon();
    let create = |memory_mb, wish: Option<u64>| {
        let spec = request(memory_mb, "", |request| request.memory_mb = wish).spec;
        in_time(daemon.sessions.get_or_create(spec))
    };
    create(256, Some(128)).await.expect("made");
    // The caller that created the session set the field, so the profile does not change it.
    let kept = create(384, None).await.expect("there");
    assert_eq!((kept.incarnation, kept.memory_mb), (1, 128));
    let error = create(384, Some(384)).await.expect_err("another box");
    assert!(
        matches!(
            error,
            SessionError::Conflict {
                field: "memory_mb",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(daemon.backend.starts(), 1);
}
