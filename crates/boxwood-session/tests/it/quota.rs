//! Quotas of workspaces that are directories of the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use boxwood_api::{ErrorCode, ExecStatus, MountMode, ProcessStatus, Reason, WriteTextRequest};
use boxwood_backend::{FileCall, FileTool, OpenFor, Stdio};
use boxwood_policy::Admission;
use boxwood_session::{ExecEvent, Replace, Resume, SessionError, Writer};
use boxwood_test_support::{FakeHost, Fault, Point};

use crate::{
    TestDaemon, daemon, daemon_of, daemon_with, eventually, id, in_time, process_id, request_with,
    script,
};

const MIB: u64 = 1024 * 1024;

fn in_directory(session: &str, directory: &Path, quota_mb: u64, cmd: &str) -> Admission {
    request_with(session, cmd, |request| {
        request.host_path = Some(directory.display().to_string());
        request.host_path_mode = Some(MountMode::Rw);
        request.workspace_quota_mb = Some(quota_mb);
        request.timeout_sec = Some(60);
    })
}

fn workspace() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// For commands that end before the poll finds out what they wrote.
fn without_polling() -> TestDaemon {
    daemon_with(|settings| settings.quota_poll_interval = Duration::from_mins(10))
}

fn full(bytes: u64) -> Vec<u8> {
    vec![1; usize::try_from(bytes).expect("small")]
}

async fn refusal(daemon: &TestDaemon, admission: Admission) -> SessionError {
    in_time(daemon.sessions.exec(admission))
        .await
        .expect_err("too much")
}

#[tokio::test]
async fn a_command_in_a_full_workspace_is_refused_before_it_starts() {
    let (daemon, directory) = (daemon(), workspace());
    fs::write(directory.path().join("f"), full(3 * MIB)).expect("written");
    let error = refusal(&daemon, in_directory("s", directory.path(), 2, "touch ran")).await;
    assert_eq!(error.code(), ErrorCode::ValidationError);
    let expected = format!(
        "workspace quota exceeded before execution: used={} bytes limit={} bytes host_path={} \
         session_id=s",
        3 * MIB,
        2 * MIB,
        directory.path().display()
    );
    let message = error.to_string();
    // A file system may take a little more than the file is long.
    let shape = |text: &str| text.replacen(|digit: char| digit.is_ascii_digit(), "", 7);
    assert_eq!(shape(&message), shape(&expected));
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("remove files"))
    );
    assert!(!directory.path().join("ran").exists());
    // Other writes are refused too. Removing files is allowed.
    let write = FileCall::Open {
        path: "/workspace/g".to_owned(),
        how: OpenFor::Write { mode: 0o644 },
    };
    let refused = in_time(daemon.sessions.file(&id("s"), write)).await;
    assert!(matches!(refused, Err(SessionError::OverQuota { .. })));
    let process = script("p", "sleep 60");
    let refused = in_time(
        daemon
            .sessions
            .start_process(&id("s"), process, Replace::Refuse),
    )
    .await;
    assert!(matches!(refused, Err(SessionError::OverQuota { .. })));
    let remove = FileCall::Remove {
        path: "/workspace/f".to_owned(),
        recursive: false,
    };
    in_time(daemon.sessions.file(&id("s"), remove))
        .await
        .expect("removed");
    let result = in_time(
        daemon
            .sessions
            .exec(in_directory("s", directory.path(), 2, "touch ran")),
    )
    .await
    .expect("room again");
    assert_eq!(result.exit_code, Some(0));
    assert!(directory.path().join("ran").exists());
}

/// A symlink in the box can lead any path into the workspace, so the path does not matter.
#[tokio::test]
async fn over_quota_the_daemon_saves_output_and_client_writes_are_refused_everywhere() {
    let (daemon, directory) = (daemon(), workspace());
    let command = |cmd: &str| in_directory("s", directory.path(), 2, cmd);
    in_time(daemon.sessions.exec(command("true")))
        .await
        .expect("run");
    fs::write(directory.path().join("f"), full(3 * MIB)).expect("written");
    let make = || FileCall::Mkdir {
        path: "/tmp/.boxwood/output".to_owned(),
        parents: true,
    };
    let open = FileCall::Open {
        path: "/tmp/.boxwood/output/1.stdout".to_owned(),
        how: OpenFor::Write { mode: 0o644 },
    };
    let write = FileCall::Tool(FileTool::Write(WriteTextRequest {
        path: "/tmp/.boxwood/output/1.stdout".to_owned(),
        content: "more".to_owned(),
    }));
    for call in [make(), open, write] {
        let refused = in_time(daemon.sessions.file(&id("s"), call)).await;
        assert!(
            matches!(refused, Err(SessionError::OverQuota { .. })),
            "{refused:?}"
        );
    }
    let refused = in_time(daemon.sessions.check_room(&id("s"))).await;
    assert!(matches!(refused, Err(SessionError::OverQuota { .. })));
    in_time(daemon.sessions.file_by(Writer::Daemon, &id("s"), make()))
        .await
        .expect("kept");
}

#[tokio::test]
async fn a_workspace_over_quota_after_a_command_is_reported_and_the_session_lives() {
    let (daemon, directory) = (without_polling(), workspace());
    let write = |cmd: &str| in_directory("s", directory.path(), 2, cmd);
    let cmd = "head -c 3145728 /dev/zero > f; echo done";
    let result = in_time(daemon.sessions.exec(write(cmd)))
        .await
        .expect("run");
    assert_eq!(
        (result.stdout.as_str(), result.exit_code),
        ("done\n", Some(0))
    );
    assert_eq!(result.reason, None, "nothing stopped it");
    let [notice] = result.notices.as_slice() else {
        panic!("{:?}", result.notices);
    };
    assert!(
        notice.starts_with("workspace quota exceeded after execution: used="),
        "{notice}"
    );
    assert_eq!(daemon.sessions.list().len(), 1, "the session is there");
    refusal(&daemon, write("true")).await;
    fs::remove_file(directory.path().join("f")).expect("removed");
    let cmd = "head -c 3145728 /dev/zero > f; exit 3";
    let result = in_time(daemon.sessions.exec(write(cmd)))
        .await
        .expect("run");
    assert_eq!(
        (result.exit_code, result.reason),
        (Some(3), Some(Reason::DiskQuota))
    );
}

/// The reason and the notices of a streamed command.
async fn streamed(daemon: &TestDaemon, admission: Admission) -> (Option<Reason>, Vec<String>) {
    let begun = daemon
        .sessions
        .stream(admission, Stdio::Output, Resume::Never);
    let exec = in_time(begun).await.expect("begun");
    loop {
        match in_time(exec.next()).await {
            Some(ExecEvent::Exited(exit)) => return (exit.reason, exit.notices),
            Some(_) => {}
            None => panic!("no end"),
        }
    }
}

#[tokio::test]
async fn a_workspace_over_quota_after_a_streamed_command_is_reported() {
    let (daemon, directory) = (without_polling(), workspace());
    let write = |bytes: u64| {
        let cmd = format!("head -c {bytes} /dev/zero > f");
        in_directory("s", directory.path(), 2, &cmd)
    };
    assert_eq!(streamed(&daemon, write(MIB)).await, (None, Vec::new()));
    let (reason, notices) = streamed(&daemon, write(3 * MIB)).await;
    assert_eq!(reason, None, "nothing stopped it");
    assert!(
        notices[0].starts_with("workspace quota exceeded after execution: used="),
        "{notices:?}"
    );
}

#[tokio::test]
async fn a_workspace_within_its_quota_gives_no_notice() {
    let (daemon, directory) = (daemon(), workspace());
    let cmd = "head -c 1048576 /dev/zero > f";
    let admission = in_directory("s", directory.path(), 4, cmd);
    let result = in_time(daemon.sessions.exec(admission)).await.expect("run");
    assert_eq!((result.exit_code, result.reason), (Some(0), None));
    assert_eq!(result.notices, Vec::<String>::new());
}

/// Writes files of 4 MiB without end.
const FLOOD: &str = "i=0; while :; do i=$((i+1)); head -c 4194304 /dev/zero > f$i; done";

/// What `FLOOD` can write in one poll interval and one measurement, with room for a busy machine.
const OVERSHOOT: u64 = 4096 * MIB;

fn taken(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).expect("a directory").flatten();
    files
        .filter_map(|file| file.metadata().ok())
        .map(|facts| facts.len())
        .sum()
}

fn clear(directory: &Path) {
    for file in fs::read_dir(directory).expect("a directory").flatten() {
        fs::remove_file(file.path()).expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_over_quota_is_killed_while_it_runs() {
    let (daemon, directory) = (daemon(), workspace());
    let admission = in_directory("s", directory.path(), 48, FLOOD);
    let began = Instant::now();
    let result = in_time(daemon.sessions.exec(admission)).await.expect("run");
    assert_eq!(result.status, ExecStatus::Completed);
    assert_eq!(
        (result.exit_code, result.reason),
        (Some(137), Some(Reason::DiskQuota))
    );
    assert!(
        result.notices[0].contains("after execution"),
        "{:?}",
        result.notices
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    let taken = taken(directory.path());
    assert!(taken <= 48 * MIB + OVERSHOOT, "{} MiB", taken / MIB);
    assert_eq!(daemon.sessions.list().len(), 1, "the session is there");
}

/// The program runs before the call that started it returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_killed_while_it_starts_has_the_reason_disk_quota() {
    let (host, directory) = (FakeHost::new(), workspace());
    let daemon = daemon_of(host.backend(), |_| {});
    let command = |cmd| in_directory("s", directory.path(), 32, cmd);
    in_time(daemon.sessions.exec(command("true")))
        .await
        .expect("run");
    let flood = format!("echo $$ > pid; {FLOOD}");
    host.fault(Point::Spawned, Fault::Hangs);
    let stopped = async {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let pid = || read(&directory.path().join("pid"));
        eventually("it runs", || pid().ends_with('\n')).await;
        // A zombie has an empty command line.
        let shown = PathBuf::from(format!("/proc/{}/cmdline", pid().trim()));
        eventually("it is stopped", || read(&shown).is_empty()).await;
        host.mend();
    };
    let (result, ()) =
        in_time(async { tokio::join!(daemon.sessions.exec(command(&flood)), stopped) }).await;
    assert_eq!(result.expect("run").reason, Some(Reason::DiskQuota));
    clear(directory.path());
    let result = in_time(daemon.sessions.exec(command("exit 3"))).await;
    assert_eq!(
        result.expect("run").reason,
        None,
        "the earlier kill has nothing to do with it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamed_commands_and_managed_processes_have_the_same_reason() {
    let (daemon, directory) = (daemon(), workspace());
    let admission = in_directory("s", directory.path(), 32, FLOOD);
    let (reason, _) = streamed(&daemon, admission).await;
    assert_eq!(reason, Some(Reason::DiskQuota));
    clear(directory.path());
    in_time(
        daemon
            .sessions
            .start_process(&id("s"), script("p", FLOOD), Replace::Refuse),
    )
    .await
    .expect("begun");
    let info = || {
        daemon
            .sessions
            .process(&id("s"), &process_id("p"))
            .expect("known")
    };
    eventually("it is stopped", || info().status == ProcessStatus::Exited).await;
    assert_eq!(info().reason, Some(Reason::DiskQuota));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_sessions_in_one_directory_the_one_with_the_larger_quota_goes_on() {
    let (daemon, directory) = (daemon(), workspace());
    let waiting = in_directory("large", directory.path(), 4096, "sleep 2; echo still here");
    let writing = in_directory("small", directory.path(), 32, FLOOD);
    let (waiting, writing) =
        tokio::join!(daemon.sessions.exec(waiting), daemon.sessions.exec(writing));
    assert_eq!(writing.expect("run").reason, Some(Reason::DiskQuota));
    assert_eq!(waiting.expect("run").stdout, "still here\n");
    // Each session has its own quota for the same directory.
    refusal(&daemon, in_directory("third", directory.path(), 32, "true")).await;
    let raised = in_directory("fourth", directory.path(), 512, "echo room");
    let raised = in_time(daemon.sessions.exec(raised)).await.expect("room");
    assert_eq!(raised.stdout, "room\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_host_only_boxes_that_write_are_killed() {
    let (writes, reads) = (workspace(), workspace());
    // More than any disk has.
    let daemon = daemon_with(|settings| settings.load.min_free_bytes = Some(u64::MAX / 2));
    let writer = in_directory(
        "writer",
        writes.path(),
        0,
        "head -c 8388608 /dev/zero > f; sleep 60",
    );
    let reader = in_directory("reader", reads.path(), 0, "sleep 3; echo unharmed");
    let (writer, reader) = tokio::join!(daemon.sessions.exec(writer), daemon.sessions.exec(reader));
    assert_eq!(writer.expect("run").reason, Some(Reason::DiskQuota));
    assert_eq!(reader.expect("run").stdout, "unharmed\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polling_ends_with_the_session() {
    let (daemon, directory) = (daemon(), workspace());
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let admission = in_directory("s", directory.path(), 8, "true");
    in_time(daemon.sessions.exec(admission)).await.expect("run");
    assert!(tasks() > before);
    in_time(daemon.sessions.delete(&id("s"), "over"))
        .await
        .expect("deleted");
    eventually("all tasks of the session end", || tasks() <= before).await;
}
