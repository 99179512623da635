//! Helpers for sessions, commands and processes.

use std::collections::{BTreeMap, BTreeSet};

use boxwood_api::{
    ErrorCode, ExecResult, ProcessId, ProcessSpec, ProcessStatus, Reason, SessionId, SpecRequest,
};
use boxwood_client::{Client, ClientError};
use tokio::task::JoinHandle;

use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::traces::running;
use crate::waiting::{answered, until};

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::new(text).expect("an id")
}

pub(crate) fn command(cmd: &str) -> SpecRequest {
    SpecRequest {
        cmd: cmd.to_owned(),
        timeout_sec: Some(300),
        ..SpecRequest::default()
    }
}

/// A command that runs until it is killed, and has a marker in its command line.
pub(crate) fn endless(marker: &str) -> String {
    format!("while :; do sleep 0.2; : {marker}; done")
}

pub(crate) async fn exec(
    client: &Client,
    session: &str,
    cmd: &str,
) -> Result<ExecResult, ClientError> {
    answered("a command", client.exec(&id(session), &command(cmd))).await
}

/// Runs a command, which must succeed.
#[track_caller]
pub(crate) fn stdout_of<'a>(
    client: &'a Client,
    session: &'a str,
    cmd: &'a str,
) -> impl Future<Output = String> + 'a {
    let location = std::panic::Location::caller();
    async move {
        match exec(client, session, cmd).await {
            Ok(result) if result.exit_code == Some(0) => result.stdout,
            other => panic!("`{cmd}` in `{session}` ({location}): {other:?}"),
        }
    }
}

/// A command that runs while the test changes the engine.
pub(crate) struct Running {
    pub(crate) session: String,
    call: JoinHandle<Result<ExecResult, ClientError>>,
}

impl Running {
    /// Returns when the command runs.
    pub(crate) async fn begin(daemon: &Daemon, session: &str, marker: &str) -> Self {
        let before = running(marker);
        let (client, spec) = (daemon.client.clone(), command(&endless(marker)));
        let name = id(session);
        let call = tokio::spawn(async move { client.exec(&name, &spec).await });
        until("the command runs, or has ended", || {
            running(marker) > before || call.is_finished()
        })
        .await;
        assert!(
            !call.is_finished(),
            "it did not stay: {:?}",
            call.await.expect("the call does not panic")
        );
        Self {
            session: session.to_owned(),
            call,
        }
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.call.is_finished()
    }

    /// The response, which must arrive and have a reason.
    pub(crate) async fn ends_by(self, expected: &[Reason]) {
        let Self { session, call } = self;
        let answer = answered("the answer to a running command", call).await;
        match answer.expect("the call does not panic") {
            Ok(ExecResult {
                reason: Some(reason),
                ..
            }) if expected.contains(&reason) => {}
            Err(error) if error.code() == ErrorCode::SessionGone => {}
            other => panic!("`{session}` should have ended by {expected:?}: {other:?}"),
        }
    }
}

/// A managed process that runs until it is killed.
pub(crate) async fn keep(daemon: &Daemon, session: &str, marker: &str) {
    keep_script(daemon, session, &endless(marker), marker).await;
}

/// The same with a script that contains the marker.
pub(crate) async fn keep_script(daemon: &Daemon, session: &str, script: &str, marker: &str) {
    let spec = ProcessSpec {
        process_id: ProcessId::default(),
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: BTreeMap::new(),
        cwd: "/workspace".to_owned(),
    };
    let session = id(session);
    let started = daemon.client.start_process(&session, &spec);
    let started = answered("a process", started).await;
    started.expect("the process starts");
    until("the process runs", || running(marker) > 0).await;
}

/// Its current state.
pub(crate) async fn kept(daemon: &Daemon, session: &str) -> ProcessStatus {
    let (session, process) = (id(session), ProcessId::default());
    let process = daemon.client.process(&session, &process);
    let process = answered("a process", process).await;
    process.expect("it is there").status
}

/// The boxes that a daemon lists, by the engine's names.
pub(crate) async fn listed(daemon: &Daemon) -> BTreeSet<String> {
    let sessions = answered("a list", daemon.client.sessions()).await;
    let sessions = sessions.expect("sessions are listed");
    sessions
        .into_iter()
        .map(|info| info.backend_session_id)
        .collect()
}

/// Waits until the engine has exactly the boxes that the daemons list, and `others`.
#[track_caller]
pub(crate) fn engine_has_only_boxes_of<'a>(
    engine: &'a Engine,
    daemons: &'a [&'a Daemon],
    others: &'a [&'a str],
) -> impl Future<Output = ()> + 'a {
    let location = std::panic::Location::caller();
    async move {
        let begin = std::time::Instant::now();
        loop {
            let mut expected: BTreeSet<String> =
                others.iter().map(|&name| name.to_owned()).collect();
            for daemon in daemons {
                expected.extend(listed(daemon).await);
            }
            let found = engine.containers();
            if found == expected {
                return;
            }
            assert!(
                begin.elapsed() < crate::waiting::SETTLED,
                "the engine has {found:?}, the daemons have {expected:?} ({location})"
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// A start fails with `backend_unavailable` and a hint.
#[track_caller]
pub(crate) fn is_refused_as_unavailable<'a>(
    client: &'a Client,
    session: &'a str,
) -> impl Future<Output = ()> + 'a {
    let location = std::panic::Location::caller();
    async move {
        match exec(client, session, "true").await {
            Err(ClientError::Refused {
                code: ErrorCode::BackendUnavailable,
                hint: Some(hint),
                ..
            }) if !hint.is_empty() => {}
            other => panic!("a box without an engine ({location}): {other:?}"),
        }
    }
}
