//! The hosting runtime of the daemon, on a backend without isolation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use boxwood_agent::Running;
use boxwood_api::{
    ErrorCode, McpBoxSettings, MountMode, ProcessId, ProcessSpec, SessionId, SpecRequest,
};
use boxwood_mcp::{BoxAvailability, HostingMount, ProcessIo, Runtime};
use boxwood_policy::{Facts, Origin, PolicyRules};
use boxwood_session::{Backends, Candidate, Choice, Sessions, Settings};
use boxwood_skills::{Limits, SkillStore};
use boxwood_test_support::FakeBackend;
use tempfile::TempDir;

use super::host::NotRunning;
use super::{DaemonRuntime, McpHost};

struct Case {
    runtime: DaemonRuntime,
    sessions: Sessions,
    dir: TempDir,
}

impl Case {
    fn new() -> Self {
        let backend = FakeBackend::new();
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = Sessions::new(Backends::only(backend), Settings::default());
        Self {
            runtime: runtime(&sessions, dir.path(), true),
            sessions,
            dir,
        }
    }

    /// A directory that clients may mount.
    fn open_to_clients(&self) -> std::path::PathBuf {
        let root = self.dir.path().canonicalize().expect("real").join("open");
        std::fs::create_dir_all(root.join("project")).expect("made");
        root
    }

    async fn with_cat(&self) {
        let created = self.runtime.create(spec_request("mcp-a"), Vec::new()).await;
        created.expect("a box");
        let cat = self.runtime.start(&id("mcp-a"), process("cat")).await;
        cat.expect("a process");
    }

    async fn attach(&self) -> Box<dyn ProcessIo> {
        let attached = self.runtime.attach(&id("mcp-a"), &main()).await;
        attached.unwrap_or_else(|error| panic!("{error}"))
    }
}

fn runtime(sessions: &Sessions, dir: &Path, boxes_enabled: bool) -> DaemonRuntime {
    let root = dir.canonicalize().expect("real");
    let rules = PolicyRules {
        allowed_roots: vec![root.join("open")],
        blocked: vec![root.join("mcp")],
        ..PolicyRules::default()
    };
    let skills = SkillStore::new(dir.join("skills"), Limits::default());
    let timeout = Duration::from_secs(30);
    let made = DaemonRuntime::new(
        &dir.join("mcp"),
        sessions,
        &rules,
        skills,
        timeout,
        boxes_enabled,
    );
    made.expect("a directory")
}

fn id(name: &str) -> SessionId {
    SessionId::new(name).expect("an id")
}

fn main() -> ProcessId {
    ProcessId::new("main").expect("an id")
}

fn spec_request(name: &str) -> SpecRequest {
    SpecRequest {
        session_id: Some(id(name)),
        persistent: Some(true),
        ..SpecRequest::default()
    }
}

fn process(command: &str) -> ProcessSpec {
    ProcessSpec {
        process_id: main(),
        command: command.to_owned(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: "/workspace".to_owned(),
    }
}

async fn next(wire: &dyn ProcessIo) -> String {
    let waiting = tokio::time::timeout(Duration::from_secs(10), wire.next());
    let bytes = waiting.await.expect("within 10 s").expect("more");
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Reads until `expected` has arrived.
async fn read(wire: &dyn ProcessIo, expected: &str) {
    let mut got = String::new();
    while got.len() < expected.len() {
        got.push_str(&next(wire).await);
    }
    assert_eq!(got, expected);
}

async fn send(wire: &dyn ProcessIo, text: &'static str) {
    wire.send(text.into()).await.expect("accepted");
}

#[tokio::test]
async fn a_returning_reader_loses_no_line() {
    let case = Case::new();
    case.with_cat().await;
    let wire = case.attach().await;
    send(&*wire, "one\ntwo\nthr").await;
    read(&*wire, "one\ntwo\nthr").await;
    drop(wire);

    // Only the partial line is delivered again.
    let wire = case.attach().await;
    assert_eq!(next(&*wire).await, "thr");
    send(&*wire, "ee\nfour\n").await;
    read(&*wire, "ee\nfour\n").await;
    drop(wire);

    // Output is kept while no reader is attached.
    let wire = case.attach().await;
    send(&*wire, "five\n").await;
    drop(wire);
    let wire = case.attach().await;
    read(&*wire, "five\n").await;
    wire.close_input();
    let exit = tokio::time::timeout(Duration::from_secs(10), wire.exited()).await;
    assert_eq!(exit.expect("an end").exit_code, Some(0));
    assert!(wire.next().await.is_none());
}

#[tokio::test]
async fn a_partial_line_longer_than_the_buffer_is_dropped() {
    let case = Case::new();
    case.with_cat().await;
    let wire = case.attach().await;
    let chunk = "x".repeat(256 * 1024);
    let mut got = 0;
    for _ in 0..6 {
        let sending = wire.send(chunk.clone().into());
        let (sent, ()) = tokio::join!(sending, async {
            let until = got + chunk.len();
            while got < until {
                got += next(&*wire).await.len();
            }
        });
        sent.expect("accepted");
    }
    drop(wire);
    let wire = case.attach().await;
    send(&*wire, "\nnext\n").await;
    read(&*wire, "\nnext\n").await;
}

#[tokio::test]
async fn a_second_reader_gets_a_conflict() {
    let case = Case::new();
    case.with_cat().await;
    let _wire = case.attach().await;
    tokio::time::pause();
    let second = case.runtime.attach(&id("mcp-a"), &main()).await;
    let error = second.err().expect("refused");
    assert_eq!(error.code, ErrorCode::ManagedProcessConflict);
    assert!(error.hint.is_some());
}

#[tokio::test]
async fn removing_and_finding_missing_sessions_is_no_error() {
    let case = Case::new();
    let missing = id("mcp-missing");
    case.runtime.delete(&missing).await.expect("nothing to do");
    let stopped = case.runtime.stop(&missing, &main()).await;
    stopped.expect("nothing to do");
    assert_eq!(case.runtime.session(&missing).await.expect("checked"), None);
    case.with_cat().await;
    let absent = ProcessId::new("absent").expect("an id");
    let stopped = case.runtime.stop(&id("mcp-a"), &absent).await;
    stopped.expect("nothing to do");
    let found = case.runtime.sessions().await.expect("checked");
    assert_eq!(found, [id("mcp-a")]);
    assert!(case.runtime.attach(&missing, &main()).await.is_err());
}

#[tokio::test]
async fn a_command_runs_only_in_an_existing_box() {
    let case = Case::new();
    let command = |name: &str| SpecRequest {
        cmd: "echo $WORD; echo no >&2; exit 3".to_owned(),
        env: [("WORD".to_owned(), "yes".to_owned())].into(),
        ..spec_request(name)
    };
    let refused = case.runtime.exec(command("mcp-a")).await;
    let code = refused.err().expect("refused").code;
    assert_eq!(code, ErrorCode::SessionNotFound);
    assert!(case.sessions.list().is_empty());
    case.with_cat().await;
    let mut started = case.runtime.exec(command("mcp-a")).await.expect("begun");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = loop {
        match started.command.next().await.expect("news") {
            Running::Stdout(bytes) => out.extend_from_slice(&bytes),
            Running::Stderr(bytes) => err.extend_from_slice(&bytes),
            Running::Exited(exit) => break exit,
        }
    };
    assert_eq!((&*out, &*err), (&b"yes\n"[..], &b"no\n"[..]));
    assert_eq!(exit.exit_code, Some(3));
}

#[tokio::test]
async fn only_hosting_directories_can_be_mounted() {
    let case = Case::new();
    let home = case.runtime.home().to_owned();
    for made in ["cache/k", "secrets/a"] {
        std::fs::create_dir_all(home.join(made)).expect("made");
    }
    let mount = |path: &str| HostingMount {
        host_path: home.join(path),
        mount_path: "/opt/mcp".to_owned(),
        is_writable: false,
    };
    let refused = case
        .runtime
        .create(spec_request("mcp-a"), vec![mount("secrets/a")]);
    assert!(refused.await.is_err());
    let made = case
        .runtime
        .create(spec_request("mcp-a"), vec![mount("cache/k")]);
    let info = made.await.expect("a box").session;
    assert_eq!(info.extra_mounts.len(), 1);
    assert_eq!(info.extra_mounts[0].mode, MountMode::Ro);
    // A client cannot mount the same directory by its path.
    let client_mount = SpecRequest {
        host_path: Some(home.join("cache/k").display().to_string()),
        ..spec_request("mcp-b")
    };
    let error = case.runtime.create(client_mount, Vec::new()).await;
    let message = error.expect_err("refused").message;
    assert!(message.contains("blocked for security"), "{message}");
}

#[tokio::test]
async fn policy_checks_a_directory_before_it_is_read() {
    let case = Case::new();
    let root = case.open_to_clients();
    let with_mount = |path: &Path| SpecRequest {
        host_path: Some(path.display().to_string()),
        host_path_mode: Some(MountMode::Ro),
        ..spec_request("mcp-a")
    };
    let project = root.join("project");
    let judged = case
        .runtime
        .check_policy(with_mount(&project))
        .await
        .expect("allowed");
    assert!(judged, "it would be mounted");
    for refused in [Path::new("/usr"), Path::new("/etc"), &root.join("missing")] {
        assert!(
            case.runtime
                .check_policy(with_mount(refused))
                .await
                .is_err(),
            "{refused:?}"
        );
    }
    let without = case.runtime.check_policy(spec_request("mcp-a")).await;
    assert!(!without.expect("allowed"), "there is no directory");
    assert!(case.sessions.list().is_empty(), "nothing was made");
}

#[tokio::test]
async fn availability_is_known_before_a_start() {
    let case = Case::new();
    let settings = McpBoxSettings::default();
    assert_eq!(
        case.runtime.availability(&settings).await,
        BoxAvailability::Ready
    );
    let off = runtime(&case.sessions, case.dir.path(), false);
    assert_eq!(off.availability(&settings).await, BoxAvailability::Disabled);
}

#[tokio::test]
async fn availability_refers_to_the_selected_backend() {
    let dir = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one", "two"].map(FakeBackend::named);
    one.break_down("no kernel today", "get one");
    let availability = async |choice: &str, named: Option<&str>| {
        let candidates = [one.clone(), two.clone()].map(|backend| Candidate::initialised(backend));
        let backends = Backends::new(candidates, Choice::new(choice));
        let sessions = Sessions::new(backends, Settings::default());
        let settings = McpBoxSettings {
            backend: named.map(str::to_owned),
            ..McpBoxSettings::default()
        };
        runtime(&sessions, dir.path(), true)
            .availability(&settings)
            .await
    };
    let unavailable = BoxAvailability::Unavailable {
        message: "backend `one` is unavailable: no kernel today".to_owned(),
        hint: Some("get one".to_owned()),
    };
    // The daemon's choice applies only if the server names no backend.
    assert_eq!(availability("auto", None).await, BoxAvailability::Ready);
    assert_eq!(availability("auto", Some("one")).await, unavailable);
    assert_eq!(availability("one", None).await, unavailable);
    assert_eq!(
        availability("one", Some("two")).await,
        BoxAvailability::Ready
    );
    // Reported when the box is created, because waiting does not help.
    assert_eq!(
        availability("auto", Some("three")).await,
        BoxAvailability::Ready
    );
}

#[tokio::test]
async fn the_backend_is_part_of_the_box_kind() {
    let dir = tempfile::tempdir().expect("a directory");
    let candidates = ["one", "two"].map(|name| Candidate::initialised(FakeBackend::named(name)));
    // The default of the profile does not apply to other backends.
    let backends = Backends::new(candidates, Choice::new("one")).with_default_backend(Some("two"));
    let sessions = Sessions::new(backends, Settings::default());
    let runtime = runtime(&sessions, dir.path(), true);
    for (named, expected) in [(None, "one"), (Some("two"), "two")] {
        let settings = McpBoxSettings {
            backend: named.map(str::to_owned),
            ..McpBoxSettings::default()
        };
        assert_eq!(
            runtime.availability(&settings).await,
            BoxAvailability::Ready
        );
        let request = SpecRequest {
            backend: settings.backend,
            ..spec_request("mcp-a")
        };
        let kind = runtime.resolve(request).await.expect("resolved");
        assert_eq!(kind.backend, expected);
    }
}

#[tokio::test]
async fn a_daemon_without_hosting_removes_only_hosted_servers() {
    let case = Case::new();
    case.with_cat().await;
    let facts = Facts::default();
    let request = spec_request("mine");
    let rules = PolicyRules::default();
    let mine = boxwood_policy::admit(&request, Origin::Client, &facts, &rules);
    let mine = case.sessions.get_or_create(mine.expect("admitted").spec);
    mine.await.expect("a session");
    let names = || -> Vec<String> {
        let sessions = case.sessions.list().into_iter();
        sessions
            .map(|session| session.session_id.to_string())
            .collect()
    };
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    // A broken setup may work after the next start.
    let broken = McpHost {
        running: Err(NotRunning::Failed("no room".to_owned())),
        sessions: case.sessions.clone(),
    };
    broken.begin(stopping.clone());
    tokio::task::yield_now().await;
    assert_eq!(names(), ["mcp-a", "mine"]);
    let refused = broken.hosting().err().expect("refused");
    assert!(format!("{refused:?}").contains("BOXWOOD_OPERATOR=1"));
    let off = McpHost {
        running: Err(NotRunning::Disabled),
        sessions: case.sessions.clone(),
    };
    off.begin(stopping);
    let ended = tokio::time::timeout(Duration::from_secs(30), async {
        while names() != ["mine"] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    ended.await.expect("within 30 s");
}

#[tokio::test]
async fn only_hosting_can_access_a_servers_box() {
    let case = Case::new();
    case.with_cat().await;
    let refused = case.sessions.logs(&id("mcp-a"), &main());
    assert_eq!(
        refused.map(drop).expect_err("refused").code(),
        ErrorCode::Forbidden
    );
    let logs = case.runtime.stderr(&id("mcp-a"), &main()).await;
    assert_eq!(logs.expect("hosting may"), "");
}
