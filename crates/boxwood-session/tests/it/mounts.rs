//! Mounts that are added to existing sessions.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boxwood_api::{ErrorCode, MountMode, MountSpec, SessionInfo};
use boxwood_backend::{FileAnswer, FileCall, OpenFor};
use boxwood_policy::{Admission, Origin};
use boxwood_session::{Replace, SessionError};
use boxwood_test_support::admission_for;

use super::{TestDaemon, daemon, eventually, id, in_time, request, request_with, script};

/// Directories to mount. Each has a file `name` that contains its name.
struct Shelf {
    directory: tempfile::TempDir,
}

impl Shelf {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn package(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir(&path).expect("made");
        fs::write(path.join("name"), name).expect("written");
        path
    }
}

fn mount(source: &Path, mount_path: &str, mode: MountMode) -> MountSpec {
    MountSpec {
        host_path: source.display().to_string(),
        mount_path: mount_path.to_owned(),
        mode,
    }
}

fn by_platform(session: &str, cmd: &str, mounts: &[MountSpec]) -> Admission {
    admission_for(Origin::LangBotPlatform, &[], session, cmd, |request| {
        request.extra_mounts = mounts.to_vec();
    })
    .expect("policy allows the test's request")
}

fn with_skills(session: &str, cmd: &str, skills: &[&Path]) -> Admission {
    admission_for(Origin::Client, skills, session, cmd, |_| {}).expect("allowed")
}

async fn made(daemon: &TestDaemon, admission: Admission) -> SessionInfo {
    in_time(daemon.sessions.get_or_create(admission.spec))
        .await
        .expect("a session")
}

fn mount_paths(info: &SessionInfo) -> Vec<&str> {
    let mounts = info.extra_mounts.iter();
    mounts.map(|mount| mount.mount_path.as_str()).collect()
}

async fn read(daemon: &TestDaemon, path: &str) -> String {
    let call = FileCall::Open {
        path: path.to_owned(),
        how: OpenFor::Read,
    };
    match in_time(daemon.sessions.file(&id("s"), call)).await {
        Ok(FileAnswer::Opened { mut file, .. }) => {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut file, &mut text).expect("text");
            text
        }
        Ok(other) => panic!("an open answered {other:?}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_new_mount_of_the_platform_is_added_and_a_missing_one_stays() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let (one, two) = (shelf.package("one"), shelf.package("two"));
    let one = mount(&one, "/workspace/.skills/one", MountMode::Rw);
    let two = mount(&two, "/workspace/.skills/two", MountMode::Ro);
    let first = made(&daemon, by_platform("s", "", std::slice::from_ref(&one))).await;
    assert_eq!(daemon.backend.live_mounts(), 0, "it was made with it");
    let second = made(&daemon, by_platform("s", "", &[two.clone(), one.clone()])).await;
    assert_eq!(second.incarnation, first.incarnation);
    assert_eq!(daemon.backend.live_mounts(), 1);
    assert_eq!(
        mount_paths(&second),
        ["/workspace/.skills/one", "/workspace/.skills/two"]
    );
    assert_eq!(second.extra_mounts[1].mode, MountMode::Ro);
    assert_eq!(read(&daemon, "/workspace/.skills/two/name").await, "two");
    // The same again, less, and nothing at all: all of them fit.
    for mounts in [vec![one.clone(), two.clone()], vec![two], Vec::new()] {
        let same = made(&daemon, by_platform("s", "", &mounts)).await;
        assert_eq!(mount_paths(&same).len(), 2);
    }
    let result = in_time(daemon.sessions.exec(by_platform("s", "echo hi", &[one]))).await;
    assert_eq!(result.expect("it runs").stdout, "hi\n");
    assert_eq!(daemon.backend.live_mounts(), 1);
    assert_eq!(daemon.backend.starts(), 1);
}

#[tokio::test]
async fn many_requests_with_one_new_mount_add_it_once() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let new = mount(
        &shelf.package("new"),
        "/workspace/.skills/new",
        MountMode::Rw,
    );
    made(&daemon, by_platform("s", "", &[])).await;
    daemon.backend.delay_mounts(Duration::from_millis(50));
    let callers: Vec<_> = (0..10)
        .map(|_| {
            let (sessions, new) = (daemon.sessions.clone(), new.clone());
            tokio::spawn(async move { sessions.exec(by_platform("s", "true", &[new])).await })
        })
        .collect();
    for caller in callers {
        let result = in_time(caller).await.expect("no panic").expect("it runs");
        assert_eq!(result.exit_code, Some(0));
    }
    assert_eq!(daemon.backend.live_mounts(), 1);
}

#[tokio::test]
async fn a_reinstalled_package_replaces_the_old_mount() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let package = shelf.package("p");
    let at = "/workspace/.skills/p";
    made(
        &daemon,
        by_platform("s", "", &[mount(&package, at, MountMode::Rw)]),
    )
    .await;
    fs::remove_dir_all(&package).expect("removed");
    fs::create_dir(&package).expect("made anew");
    fs::write(package.join("name"), "anew").expect("written");
    let info = made(
        &daemon,
        by_platform("s", "", &[mount(&package, at, MountMode::Rw)]),
    )
    .await;
    assert_eq!(daemon.backend.live_mounts(), 1);
    assert_eq!(mount_paths(&info), [at]);
    assert_eq!(read(&daemon, &format!("{at}/name")).await, "anew");
    let info = made(
        &daemon,
        by_platform("s", "", &[mount(&package, at, MountMode::Ro)]),
    )
    .await;
    assert_eq!(daemon.backend.live_mounts(), 2);
    assert_eq!(info.extra_mounts[0].mode, MountMode::Ro);
}

#[tokio::test]
async fn a_mount_around_another_does_not_hide_it() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let inner = mount(&shelf.package("inner"), "/data/a/b", MountMode::Rw);
    let outer = mount(&shelf.package("outer"), "/data/a", MountMode::Rw);
    made(&daemon, by_platform("s", "", &[inner])).await;
    let info = made(&daemon, by_platform("s", "", &[outer])).await;
    assert_eq!(mount_paths(&info), ["/data/a", "/data/a/b"]);
    assert_eq!(
        daemon.backend.live_mounts(),
        2,
        "the inner one is put back on top"
    );
}

#[tokio::test]
async fn skills_are_added_and_other_mounts_conflict() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let (pdf, web) = (shelf.package("pdf"), shelf.package("web"));
    let base = request_with("s", "true", |request| {
        request.memory_mb = Some(256);
        request.mount_path = Some("/project".to_owned());
    });
    made(&daemon, base).await;
    let info = made(&daemon, with_skills("s", "", &[&pdf])).await;
    assert_eq!(mount_paths(&info), ["/project/.skills/pdf"]);
    assert_eq!(info.extra_mounts[0].mode, MountMode::Ro);
    let info = made(&daemon, with_skills("s", "", &[&web])).await;
    assert_eq!(mount_paths(&info).len(), 2);
    assert_eq!(daemon.backend.starts(), 1);
    let mounted = request_with("s", "true", |request| {
        request
            .extra_mounts
            .push(mount(&pdf, "/data", MountMode::Ro));
    });
    let error = in_time(daemon.sessions.exec(mounted))
        .await
        .expect_err("no");
    assert_eq!(
        error.to_string(),
        "sandbox_exec session s already exists with extra_mounts=[]"
    );
}

#[tokio::test]
async fn a_failed_mount_is_an_error_and_the_session_stays() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let new = mount(&shelf.package("new"), "/data", MountMode::Rw);
    made(&daemon, by_platform("s", "", &[])).await;
    daemon.backend.fail_next_mount("the place is taken");
    let error = in_time(
        daemon
            .sessions
            .exec(by_platform("s", "true", std::slice::from_ref(&new))),
    )
    .await
    .expect_err("the mount failed");
    assert!(matches!(error, SessionError::Mount { .. }));
    assert_eq!(error.code(), ErrorCode::ValidationError);
    assert_eq!(
        error.to_string(),
        "session s: `/data` could not be mounted in the running box: \
         the test asked for it: the place is taken"
    );
    let info = made(&daemon, by_platform("s", "", &[])).await;
    assert!(info.extra_mounts.is_empty());
    // The next request with this mount tries again.
    let info = made(&daemon, by_platform("s", "", &[new])).await;
    assert_eq!((info.incarnation, mount_paths(&info).len()), (1, 1));
}

#[tokio::test]
async fn a_box_that_dies_while_a_mount_is_added_is_recreated_with_it() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let new = mount(&shelf.package("new"), "/data", MountMode::Rw);
    made(&daemon, by_platform("s", "", &[])).await;
    daemon.backend.delay_mounts(Duration::from_millis(100));
    let (sessions, request_mounts) = (daemon.sessions.clone(), new.clone());
    let asking = tokio::spawn(async move {
        sessions
            .exec(by_platform("s", "echo hi", &[request_mounts]))
            .await
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(daemon.backend.kill_box(&id("s")));
    let result = in_time(asking).await.expect("no panic").expect("it runs");
    assert_eq!(result.stdout, "hi\n");
    let info = made(&daemon, by_platform("s", "", &[new])).await;
    assert_eq!((info.incarnation, mount_paths(&info).len()), (2, 1));
}

#[tokio::test]
async fn a_mount_is_recorded_after_its_caller_disconnects() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    let new = mount(&shelf.package("new"), "/data", MountMode::Rw);
    made(&daemon, by_platform("s", "", &[])).await;
    daemon.backend.delay_mounts(Duration::from_millis(50));
    {
        let joining = daemon
            .sessions
            .get_or_create(by_platform("s", "", std::slice::from_ref(&new)).spec);
        let mut joining = std::pin::pin!(joining);
        assert!(futures_util::poll!(joining.as_mut()).is_pending());
    }
    eventually("the mount", || daemon.backend.live_mounts() == 1).await;
    made(&daemon, by_platform("s", "", &[new])).await;
    assert_eq!(daemon.backend.live_mounts(), 1);
}

#[tokio::test]
async fn an_idle_box_that_cannot_add_mounts_is_recreated_with_all() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    daemon.backend.forbid_live_mounts();
    let pdf = shelf.package("pdf");
    let web = shelf.package("web");
    let base = admission_for(Origin::Client, &[&pdf], "s", "", |request| {
        request.memory_mb = Some(256);
    });
    let first = made(&daemon, base.expect("allowed")).await;
    let second = made(&daemon, with_skills("s", "", &[&web])).await;
    assert!(second.incarnation > first.incarnation);
    assert_eq!(daemon.backend.boxes().len(), 1);
    // What the session was made with is what it is made with again.
    assert_eq!(second.memory_mb, 256);
    assert_eq!(
        mount_paths(&second),
        ["/workspace/.skills/pdf", "/workspace/.skills/web"]
    );
    let third = made(&daemon, with_skills("s", "", &[&web])).await;
    assert_eq!(third.incarnation, second.incarnation);
}

#[tokio::test]
async fn a_busy_box_that_cannot_add_mounts_is_kept() {
    let (daemon, shelf) = (daemon(), Shelf::new());
    daemon.backend.forbid_live_mounts();
    let pdf = shelf.package("pdf");
    made(&daemon, request("s", "true")).await;
    let process = script("p", "sleep 1000");
    in_time(
        daemon
            .sessions
            .start_process(&id("s"), process, Replace::Refuse),
    )
    .await
    .expect("started");
    let result = in_time(daemon.sessions.exec(with_skills("s", "echo hi", &[&pdf])))
        .await
        .expect("it runs all the same");
    assert_eq!(result.stdout, "hi\n");
    let detail = daemon.sessions.detail(&id("s")).expect("there");
    assert!(detail.session.extra_mounts.is_empty());
    assert_eq!(detail.session.incarnation, 1);
    assert_eq!(detail.managed_processes.len(), 1);
}

#[tokio::test]
async fn all_fields_of_the_platform_are_compared_and_the_image_by_name() {
    let daemon = daemon();
    let directory = tempfile::tempdir().expect("a directory");
    made(&daemon, by_platform("s", "", &[])).await;
    let conflict = async |change: &dyn Fn(&mut boxwood_api::SpecRequest)| {
        let admission = admission_for(Origin::LangBotPlatform, &[], "s", "true", |request| {
            change(request);
        });
        in_time(daemon.sessions.exec(admission.expect("allowed")))
            .await
            .expect_err("a conflict")
            .to_string()
    };
    let host_path = directory.path().display().to_string();
    assert_eq!(
        conflict(&|request| request.host_path = Some(host_path.clone())).await,
        "sandbox_exec session s already exists with host_path=null"
    );
    // Another name is a conflict even if it resolves to the same image.
    assert_eq!(
        conflict(&|request| request.image = Some("python:3.11-slim".to_owned())).await,
        "sandbox_exec session s already exists with image=rockchin/langbot-sandbox:latest"
    );
    // For clients the resolved image is compared, and `host` is the same default image.
    let fits = request_with("s", "echo hi", |request| {
        request.image = Some("host".to_owned());
    });
    let result = in_time(daemon.sessions.exec(fits)).await.expect("it fits");
    assert_eq!(result.stdout, "hi\n");
}
