//! Selection of a backend when several are available.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ErrorCode, SpecRequest};
use boxwood_session::{
    Backends, Candidate, Choice, SessionError, Sessions, Settings, ShutdownBoxes, Stdio,
};
use boxwood_session::{Resume, TerminalSize};
use boxwood_test_support::FakeBackend;

use super::{eventually, id, in_time, request, request_with};

struct TestBackends {
    one: Arc<FakeBackend>,
    two: Arc<FakeBackend>,
    far: Arc<FakeBackend>,
    sessions: Sessions,
}

/// Two local backends, one that is not installed, and a remote one.
fn daemon(choice: &str) -> TestBackends {
    let [one, two, far] = ["one", "two", "far"].map(FakeBackend::named);
    let candidates = [
        Candidate::initialised(one.clone()),
        Candidate::absent("lost", "its program is missing", "install `lost`"),
        Candidate::initialised(two.clone()),
        Candidate::initialised(far.clone()).remote(),
    ];
    let backends = Backends::new(candidates, Choice::new(choice));
    TestBackends {
        sessions: Sessions::new(backends, Settings::default()),
        one,
        two,
        far,
    }
}

fn on(backend: &str) -> impl FnOnce(&mut SpecRequest) {
    let backend = backend.to_owned();
    move |request| request.backend = Some(backend)
}

impl TestBackends {
    async fn backend_of(
        &self,
        session: &str,
        requested: Option<&str>,
    ) -> Result<String, SessionError> {
        let admission = match requested {
            Some(backend) => request_with(session, "true", on(backend)),
            None => request(session, "true"),
        };
        let info = in_time(self.sessions.get_or_create(admission.spec)).await?;
        Ok(info.backend_name)
    }

    fn break_all(&self) {
        for (backend, why) in [
            (&self.one, "no one"),
            (&self.two, "no two"),
            (&self.far, "no far"),
        ] {
            backend.break_down(why, "mend it");
        }
    }
}

#[tokio::test]
async fn auto_uses_the_first_available_backend() {
    let daemon = daemon("auto");
    assert_eq!(daemon.backend_of("a", None).await.expect("made"), "one");
    daemon.one.break_down("it stopped", "start it");
    assert_eq!(daemon.backend_of("b", None).await.expect("made"), "two");
    // Boxes that live stay where they are.
    assert_eq!(daemon.backend_of("a", None).await.expect("there"), "one");
    daemon.two.break_down("it stopped too", "start it");
    assert_eq!(daemon.backend_of("c", None).await.expect("made"), "far");
}

#[tokio::test]
async fn local_never_uses_a_remote_backend() {
    let daemon = daemon("local");
    daemon.one.break_down("no one", "mend it");
    assert_eq!(daemon.backend_of("a", None).await.expect("made"), "two");
    daemon.two.break_down("no two", "mend it");
    let error = daemon
        .backend_of("b", None)
        .await
        .expect_err("none is left");
    assert_eq!(error.code(), ErrorCode::BackendUnavailable);
    assert_eq!(
        error.to_string(),
        "no backend is available (one: no one; lost: its program is missing; two: no two)"
    );
    assert!(error.hint().expect("a way out").contains("boxwood doctor"));
    assert_eq!(daemon.far.starts(), 0);
    // It can be requested by name.
    assert_eq!(
        daemon.backend_of("b", Some("far")).await.expect("made"),
        "far"
    );
}

#[tokio::test]
async fn a_named_backend_never_falls_back() {
    let daemon = daemon("auto");
    daemon.two.break_down("no engine", "start the engine");
    let error = daemon
        .backend_of("a", Some("two"))
        .await
        .expect_err("named");
    assert_eq!(error.code(), ErrorCode::BackendUnavailable);
    assert_eq!(error.to_string(), "no engine");
    assert_eq!(error.hint().as_deref(), Some("start the engine"));
    // The second request gets the recorded error without starting a box.
    let tried = daemon.two.starts();
    let error = daemon
        .backend_of("a", Some("two"))
        .await
        .expect_err("named");
    assert_eq!(error.to_string(), "backend `two` is unavailable: no engine");
    assert_eq!(error.hint().as_deref(), Some("start the engine"));
    assert_eq!(daemon.two.starts(), tried);

    let error = daemon
        .backend_of("a", Some("lost"))
        .await
        .expect_err("named");
    assert_eq!(error.code(), ErrorCode::BackendUnavailable);
    assert_eq!(
        error.to_string(),
        "backend `lost` is unavailable: its program is missing"
    );
    assert_eq!(error.hint().as_deref(), Some("install `lost`"));
    assert_eq!(daemon.one.starts(), 0);
    assert!(daemon.sessions.list().is_empty());
}

#[tokio::test]
async fn an_unknown_backend_is_an_error_that_lists_the_known_ones() {
    let daemon = daemon("auto");
    daemon.backend_of("living", None).await.expect("made");
    for session in ["new", "living"] {
        let error = daemon
            .backend_of(session, Some("none"))
            .await
            .expect_err("unknown");
        assert_eq!(error.code(), ErrorCode::ValidationError);
        assert_eq!(
            error.to_string(),
            "unknown backend `none`, available backends: one, lost, two, far"
        );
    }
}

#[tokio::test]
async fn a_session_on_another_backend_is_a_conflict() {
    let daemon = daemon("auto");
    daemon.backend_of("s", None).await.expect("made");
    for fitting in [Some("one"), Some("auto"), Some("local"), Some(" "), None] {
        assert_eq!(daemon.backend_of("s", fitting).await.expect("fits"), "one");
    }
    let error = daemon
        .backend_of("s", Some("two"))
        .await
        .expect_err("another");
    assert!(
        matches!(&error, SessionError::Conflict { field: "backend", value, .. } if value == "one"),
        "{error}"
    );
}

#[tokio::test]
async fn the_daemons_choice_is_used_for_requests_without_one() {
    let daemon = daemon("two");
    assert_eq!(daemon.backend_of("a", None).await.expect("made"), "two");
    assert_eq!(
        daemon.backend_of("b", Some("one")).await.expect("made"),
        "one"
    );
    assert_eq!(
        daemon.backend_of("c", Some("auto")).await.expect("made"),
        "one"
    );
    daemon.two.break_down("no engine", "start the engine");
    daemon.backend_of("d", None).await.expect_err("no fallback");
}

#[tokio::test]
async fn backends_behind_an_available_one_are_not_probed() {
    let daemon = daemon("auto");
    assert!(in_time(daemon.sessions.backends().first_probe()).await);
    for session in ["a", "b"] {
        daemon.backend_of(session, None).await.expect("made");
        assert!(daemon.sessions.status().backend.available);
    }
    assert_eq!(daemon.one.probes(), 1);
    assert_eq!((daemon.two.probes(), daemon.two.starts()), (0, 0));
    assert_eq!((daemon.far.probes(), daemon.far.starts()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn probes_are_shared_cached_and_renewed() {
    let daemon = daemon("one");
    daemon.one.delay_probes(Duration::from_secs(1));
    let looks = (0..10).map(|_| daemon.sessions.backends().survey());
    futures_util::future::join_all(looks).await;
    assert_eq!(daemon.one.probes(), 1, "probes were not shared");

    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(daemon.sessions.status().backend.available);
    settle().await;
    assert_eq!(daemon.one.probes(), 1, "success was not cached");

    tokio::time::advance(Duration::from_secs(2)).await;
    daemon.one.break_down("it stopped", "start it");
    for _ in 0..5 {
        let status = daemon.sessions.status();
        assert!(status.backend.available, "waited for the new probe");
        tokio::task::yield_now().await;
    }
    settle().await;
    assert_eq!(daemon.one.probes(), 2);
    assert!(!daemon.sessions.status().backend.available);

    daemon.one.mend();
    tokio::time::advance(Duration::from_secs(3)).await;
    daemon.sessions.status();
    settle().await;
    assert_eq!(daemon.one.probes(), 2, "failure was not cached");
    tokio::time::advance(Duration::from_secs(3)).await;
    daemon.sessions.status();
    settle().await;
    assert!(daemon.sessions.status().backend.available);
}

/// Advances the paused clock far enough for a probe.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1500)).await;
}

#[tokio::test]
async fn a_failed_start_marks_a_backend_as_unavailable_until_a_probe_succeeds() {
    let daemon = daemon("auto");
    assert!(in_time(daemon.sessions.backends().first_probe()).await);
    daemon.break_all();
    let error = daemon
        .backend_of("a", None)
        .await
        .expect_err("all are down");
    assert_eq!(error.code(), ErrorCode::BackendUnavailable);
    let status = daemon.sessions.status();
    assert!(!status.backend.available);
    assert_eq!(status.backend.name.as_deref(), Some("one"));
    daemon.far.mend();
    assert_eq!(
        daemon.backend_of("a", None).await.expect("far is back"),
        "far"
    );
    assert_eq!(
        daemon.sessions.status().backend.name.as_deref(),
        Some("far")
    );
    // The preferred one is probed in the background.
    daemon.one.mend();
    eventually("the first is back", || {
        daemon.sessions.status().backend.name.as_deref() == Some("one")
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_hangs_is_not_available() {
    tokio::time::pause();
    let daemon = daemon("one");
    daemon.one.delay_probes(Duration::from_hours(1));
    assert!(!daemon.sessions.backends().first_probe().await);
    let survey = daemon.sessions.backends().survey().await;
    let reason = survey[0].reason.as_deref().expect("a reason");
    assert_eq!(reason, "it did not answer within 30 s");
}

#[tokio::test]
async fn a_report_does_not_wait_for_other_backends_that_hang() {
    let daemon = daemon("auto");
    daemon.two.delay_probes(Duration::from_hours(1));
    daemon.far.delay_probes(Duration::from_secs(1));
    let backends = daemon.sessions.backends();
    let survey = in_time(backends.survey_for(None)).await;
    assert!(survey[0].available && survey[0].chosen, "{survey:?}");
    assert!(!survey[2].available, "not probed yet: {survey:?}");
    let survey = in_time(backends.survey_for(Some("far"))).await;
    assert!(survey[3].available, "{survey:?}");
}

#[tokio::test]
async fn a_report_has_all_backends_and_the_chosen_one() {
    let daemon = daemon("auto");
    daemon.one.break_down("no engine", "start the engine");
    let survey = in_time(daemon.sessions.backends().survey()).await;
    let reports: Vec<_> = survey
        .iter()
        .map(|it| {
            (
                it.name.as_str(),
                it.available,
                it.chosen,
                it.reason.as_deref(),
                it.fix.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        reports,
        [
            (
                "one",
                false,
                false,
                Some("no engine"),
                Some("start the engine")
            ),
            (
                "lost",
                false,
                false,
                Some("its program is missing"),
                Some("install `lost`")
            ),
            ("two", true, true, None, None),
            ("far", true, false, None, None),
        ]
    );
    assert!(
        survey[0]
            .capabilities
            .is_some_and(|able| able.pty && able.live_mounts)
    );
    assert!(survey[1].capabilities.is_none());

    let default_report = in_time(daemon.sessions.backends().doctor(None))
        .await
        .expect("a report");
    assert_eq!(
        (default_report.backend.as_str(), default_report.usable),
        ("two", true)
    );
    let named = in_time(daemon.sessions.backends().doctor(Some("one")))
        .await
        .expect("a report");
    assert_eq!((named.backend.as_str(), named.usable), ("one", false));
    assert_eq!(named.findings[0].fix.as_deref(), Some("start the engine"));
    let lost = in_time(daemon.sessions.backends().doctor(Some("lost")))
        .await
        .expect("a report");
    assert!(!lost.usable);
    assert_eq!(lost.findings[0].detail, "its program is missing");
    assert_eq!(lost.backends.len(), 4);
    let unknown = in_time(daemon.sessions.backends().doctor(Some("none"))).await;
    assert_eq!(
        unknown.expect_err("unknown").code(),
        ErrorCode::ValidationError
    );
}

#[tokio::test]
async fn capabilities_are_those_of_the_backend_of_the_box() {
    let daemon = daemon("auto");
    daemon.two.forbid_terminals();
    let terminal = || Stdio::Terminal(TerminalSize { rows: 24, cols: 80 });
    for (backend, has_one) in [("one", true), ("two", false)] {
        let admission = request_with(backend, "true", on(backend));
        let live = in_time(daemon.sessions.stream(admission, terminal(), Resume::Never)).await;
        assert_eq!(live.is_ok(), has_one, "{backend}");
        if let Err(error) = live {
            assert_eq!(
                error.to_string(),
                "the `two` backend does not support terminals"
            );
        }
    }
}

#[tokio::test]
async fn every_backend_is_shut_down() {
    let daemon = daemon("auto");
    daemon.backend_of("a", Some("two")).await.expect("made");
    in_time(daemon.sessions.shutdown(ShutdownBoxes::Stop)).await;
    assert!(daemon.two.boxes().is_empty());
    for backend in [&daemon.one, &daemon.two, &daemon.far] {
        assert_eq!(backend.shutdowns(), 1);
    }
}

#[tokio::test]
async fn a_detail_has_the_hash_of_the_configuration() {
    let daemon = daemon("auto");
    daemon.backend_of("a", None).await.expect("made");
    daemon.backend_of("b", Some("one")).await.expect("made");
    daemon.backend_of("c", Some("two")).await.expect("made");
    let hash = |name| {
        daemon
            .sessions
            .detail(&id(name))
            .expect("a session")
            .config_hash
    };
    assert_eq!(hash("a").len(), 16);
    assert_eq!(
        hash("a"),
        hash("b"),
        "the hash depends on how the backend was selected"
    );
    assert_ne!(hash("a"), hash("c"));
}
