//! Access to sessions of hosted MCP servers.

use boxwood_api::{ErrorCode, EventKind};
use boxwood_backend::Stdio;
use boxwood_policy::{Admission, Origin};
use boxwood_session::{Access, FileCall, Replace, Resume, SessionError, Sessions, Since};
use boxwood_test_support::admission_for;

use super::{daemon, eventually, id, in_time, process_id, request, script};
use crate::restart::machine::Machine;

fn hosted(session: &str) -> Admission {
    let admission = admission_for(Origin::Hosting, &[], session, "", |_| {});
    admission.expect("policy allows the test's request")
}

/// A hosted session with a process and the number of a command in it.
async fn with_server(sessions: &Sessions) -> u64 {
    let hosting = sessions.with_access(Access::Hosting);
    let made = in_time(hosting.get_or_create(hosted("mcp-a").spec)).await;
    made.expect("a session");
    let process = script("main", "echo secret >&2; exec cat");
    let server = id("mcp-a");
    let starting = hosting.start_process(&server, process, Replace::Refuse);
    in_time(starting).await.expect("a process");
    let admission = admission_for(Origin::Hosting, &[], "mcp-a", "echo done", |_| {});
    let admission = admission.expect("policy allows the test's request");
    let streaming = hosting.stream(admission, Stdio::Pipes, Resume::Allowed);
    let live = in_time(streaming).await.expect("a command");
    live.exec_id()
}

fn refused<T>(call: &str, outcome: Result<T, SessionError>) {
    let error = outcome
        .err()
        .unwrap_or_else(|| panic!("{call} went through"));
    assert_eq!(error.code(), ErrorCode::Forbidden, "{call}: {error}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("boxwood mcp"), "{call}: {hint}");
}

async fn assert_closed(sessions: &Sessions, exec_id: u64) {
    let (id, main) = (&id("mcp-a"), &process_id("main"));
    let admission = || request("mcp-a", "cat /proc/*/environ");
    refused(
        "create",
        in_time(sessions.get_or_create(admission().spec)).await,
    );
    refused("exec", in_time(sessions.exec(admission())).await);
    refused(
        "exec_existing",
        in_time(sessions.exec_existing(admission())).await,
    );
    let streaming = sessions.stream(admission(), Stdio::Pipes, Resume::Allowed);
    refused("stream", in_time(streaming).await);
    let argv = vec!["env".to_owned()];
    let streaming = sessions.stream_argv(admission(), argv, Stdio::Pipes, Resume::Never);
    refused("stream_argv", in_time(streaming).await);
    for (name, replace) in [("main", Replace::Running), ("other", Replace::Refuse)] {
        let starting = sessions.start_process(id, script(name, "env"), replace);
        refused("start_process", in_time(starting).await);
    }
    refused("process", sessions.process(id, main));
    refused("processes", sessions.processes(id));
    refused(
        "signal",
        in_time(sessions.signal_process(id, main, 9)).await,
    );
    refused("attach", sessions.check_attachable(id, main));
    let since = Since::Offset(0);
    refused("attach_at", sessions.check_attachable_at(id, main, since));
    refused("logs", sessions.logs(id, main));
    refused("stop", in_time(sessions.stop_process(id, main)).await);
    refused("execs", sessions.execs(id));
    refused("exec_detail", sessions.exec_detail(id, exec_id));
    refused("kill_exec", in_time(sessions.kill_exec(id, exec_id)).await);
    let resuming = sessions.resume_exec(id, exec_id, since, since);
    refused("resume", resuming);
    let looking = FileCall::Stat {
        path: "/workspace".to_owned(),
        follow: true,
    };
    refused("file", in_time(sessions.file(id, looking)).await);
    refused("check_room", in_time(sessions.check_room(id)).await);
    refused("delete", in_time(sessions.delete(id, "requested")).await);
}

#[tokio::test]
async fn clients_cannot_use_the_box_of_a_hosted_server() {
    let daemon = daemon();
    let exec_id = with_server(&daemon.sessions).await;
    assert_closed(&daemon.sessions, exec_id).await;
    let incarnation = daemon.sessions.list()[0].incarnation;
    let expecting = daemon.sessions.expecting(Some(incarnation));
    assert_closed(&expecting, exec_id).await;

    // Clients see the session, but not its commands and processes.
    assert_eq!(daemon.sessions.list()[0].session_id, id("mcp-a"));
    let seen = daemon.sessions.detail(&id("mcp-a")).expect("there");
    assert!(seen.managed_processes.is_empty() && seen.execs.is_empty());
    let hosting = daemon.sessions.with_access(Access::Hosting);
    let whole = hosting.detail(&id("mcp-a")).expect("there");
    assert_eq!(whole.managed_processes.len(), 1);

    // The operator may.
    let operator = daemon.sessions.with_access(Access::All);
    let result = in_time(operator.exec(request("mcp-a", "echo here"))).await;
    assert_eq!(result.expect("an end").stdout, "here\n");
    let logs = operator.logs(&id("mcp-a"), &process_id("main"));
    assert!(logs.is_ok());
    in_time(operator.delete(&id("mcp-a"), "requested"))
        .await
        .expect("gone");
}

#[tokio::test]
async fn clients_get_no_events_from_the_box_of_a_hosted_server() {
    let daemon = daemon();
    let mut watching = [Access::Clients, Access::Hosting, Access::All]
        .map(|access| daemon.sessions.with_access(access).events());
    with_server(&daemon.sessions).await;
    let hosting = daemon.sessions.with_access(Access::Hosting);
    let (server, main) = (id("mcp-a"), process_id("main"));
    in_time(hosting.stop_process(&server, &main))
        .await
        .expect("stopped");
    in_time(hosting.delete(&server, "requested"))
        .await
        .expect("gone");
    in_time(daemon.sessions.exec(request("other", "true")))
        .await
        .expect("an end");
    let mut received = Vec::new();
    for events in &mut watching {
        let (mut inside, mut outside, mut elsewhere) = (0, 0, 0);
        while let Ok(event) = events.try_recv() {
            let is_of_the_session = matches!(
                event.kind,
                EventKind::SessionCreated { .. } | EventKind::SessionDeleted { .. }
            );
            match (event.session_id == server, is_of_the_session) {
                (true, false) => inside += 1,
                (true, true) => outside += 1,
                (false, _) => elsewhere += 1,
            }
        }
        received.push((inside, outside, elsewhere));
    }
    let [clients, rest @ ..] = received.as_slice() else {
        panic!("three watchers");
    };
    assert_eq!(*clients, (0, 2, 3));
    for all in rest {
        assert!(all.0 >= 3 && (all.1, all.2) == (2, 3), "{all:?}");
    }
}

#[tokio::test]
async fn sessions_of_hosted_servers_are_not_listed_for_clients() {
    let daemon = daemon();
    with_server(&daemon.sessions).await;
    let made = in_time(daemon.sessions.get_or_create(request("s", "").spec)).await;
    made.expect("a session");
    assert_eq!(daemon.sessions.ids(), [id("s")]);
    let hosting = daemon.sessions.with_access(Access::Hosting);
    assert_eq!(hosting.ids(), [id("mcp-a")]);
    assert_eq!(daemon.sessions.with_access(Access::All).ids().len(), 2);
}

#[tokio::test]
async fn a_hosted_session_is_inaccessible_while_it_starts_and_after_a_restart() {
    let mut machine = Machine::new();
    let (daemon, _) = machine.daemon().await;
    daemon.backend.hold_starts();
    let making = {
        let hosting = daemon.sessions.with_access(Access::Hosting);
        tokio::spawn(async move { hosting.get_or_create(hosted("mcp-b").spec).await })
    };
    eventually("a start", || daemon.backend.starts() == 1).await;
    let early = daemon.sessions.exec(request("mcp-b", "env"));
    refused("exec", in_time(early).await);
    let other = id("mcp-b");
    let early = daemon.sessions.delete(&other, "requested");
    refused("delete", in_time(early).await);
    daemon.backend.release_starts();
    in_time(making).await.expect("no panic").expect("a session");

    let exec_id = with_server(&daemon.sessions).await;
    let (daemon, recovery) = machine.restart(daemon).await;
    assert_eq!(recovery.adopted, 2);
    assert_closed(&daemon.sessions, exec_id).await;
    let hosting = daemon.sessions.with_access(Access::Hosting);
    let whole = hosting.detail(&id("mcp-a")).expect("there");
    assert_eq!(whole.managed_processes.len(), 1);
}

#[tokio::test]
async fn hosting_does_not_use_a_session_of_another_caller() {
    let daemon = daemon();
    let made = in_time(daemon.sessions.get_or_create(request("mcp-a", "").spec)).await;
    made.expect("a session");
    let hosting = daemon.sessions.with_access(Access::Hosting);
    let refused = in_time(hosting.get_or_create(hosted("mcp-a").spec)).await;
    let error = refused.expect_err("refused");
    assert_eq!(error.code(), ErrorCode::SessionConflict);
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("boxwood rm mcp-a"), "{hint}");
    // Other requests of hosting do not find the session either.
    assert!(hosting.list().is_empty());
    let missing = [
        hosting.detail(&id("mcp-a")).map(drop),
        hosting.processes(&id("mcp-a")).map(drop),
        in_time(hosting.delete(&id("mcp-a"), "requested")).await,
    ];
    for outcome in missing {
        let code = outcome.expect_err("not hosting's").code();
        assert_eq!(code, ErrorCode::SessionNotFound);
    }
    assert_eq!(daemon.sessions.list().len(), 1);
}
