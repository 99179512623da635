//! What a session's commands may write to a directory of the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use boxwood_api::{ErrorCode, ExecStatus, MountMode, ProcessStatus, Reason, WriteTextRequest};
use boxwood_backend::{FileCall, FileTool, OpenFor, Stdio};
use boxwood_policy::Admission;
use boxwood_session::{LiveEvent, Replace, Resume, SessionError, Writer};
use boxwood_test_support::{FakeHost, Fault, Point};

use crate::{
    House, asked_with, eventually, house, house_of, house_with, id, in_time, process_id, script,
};

const MIB: u64 = 1024 * 1024;

fn in_directory(session: &str, directory: &Path, quota_mb: u64, cmd: &str) -> Admission {
    asked_with(session, cmd, |request| {
        request.host_path = Some(directory.display().to_string());
        request.host_path_mode = Some(MountMode::Rw);
        request.workspace_quota_mb = Some(quota_mb);
        request.timeout_sec = Some(60);
    })
}

fn workspace() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn full(bytes: u64) -> Vec<u8> {
    vec![1; usize::try_from(bytes).expect("small")]
}

async fn refusal(house: &House, admission: Admission) -> SessionError {
    in_time(house.sessions.exec(admission))
        .await
        .expect_err("too much")
}

#[tokio::test]
async fn a_full_workspace_is_refused_before_a_command_begins() {
    let (house, directory) = (house(), workspace());
    fs::write(directory.path().join("f"), full(3 * MIB)).expect("written");
    let error = refusal(&house, in_directory("s", directory.path(), 2, "touch ran")).await;
    assert_eq!(error.code(), ErrorCode::ValidationError);
    let expected = format!(
        "workspace quota exceeded before execution: used={} bytes limit={} bytes host_path={} \
         session_id=s",
        3 * MIB,
        2 * MIB,
        directory.path().display()
    );
    let said = error.to_string();
    // A file system may take a little more than the file is long.
    let shape = |text: &str| text.replacen(|digit: char| digit.is_ascii_digit(), "", 7);
    assert_eq!(shape(&said), shape(&expected));
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("remove files"))
    );
    assert!(!directory.path().join("ran").exists());
    // Nor does anything else that writes, but what removes does.
    let write = FileCall::Open {
        path: "/workspace/g".to_owned(),
        how: OpenFor::Write { mode: 0o644 },
    };
    let refused = in_time(house.sessions.file(&id("s"), write)).await;
    assert!(matches!(refused, Err(SessionError::OverQuota { .. })));
    let process = script("p", "sleep 60");
    let refused = in_time(
        house
            .sessions
            .start_process(&id("s"), process, Replace::Refuse),
    )
    .await;
    assert!(matches!(refused, Err(SessionError::OverQuota { .. })));
    let remove = FileCall::Remove {
        path: "/workspace/f".to_owned(),
        recursive: false,
    };
    in_time(house.sessions.file(&id("s"), remove))
        .await
        .expect("removed");
    let result = in_time(
        house
            .sessions
            .exec(in_directory("s", directory.path(), 2, "touch ran")),
    )
    .await
    .expect("room again");
    assert_eq!(result.exit_code, Some(0));
    assert!(directory.path().join("ran").exists());
}

/// A box can lead any of its own paths into the workspace, so no path is free for clients.
#[tokio::test]
async fn over_quota_only_the_daemon_keeps_outputs_wherever_a_client_says_it_writes() {
    let (house, directory) = (house(), workspace());
    let command = |cmd: &str| in_directory("s", directory.path(), 2, cmd);
    in_time(house.sessions.exec(command("true")))
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
        let refused = in_time(house.sessions.file(&id("s"), call)).await;
        assert!(
            matches!(refused, Err(SessionError::OverQuota { .. })),
            "{refused:?}"
        );
    }
    let refused = in_time(house.sessions.check_room(&id("s"))).await;
    assert!(matches!(refused, Err(SessionError::OverQuota { .. })));
    in_time(house.sessions.file_by(Writer::Daemon, &id("s"), make()))
        .await
        .expect("kept");
}

#[tokio::test]
async fn what_a_command_left_too_large_is_told_with_its_result_and_the_session_lives() {
    let (house, directory) = (house(), workspace());
    let write = |cmd: &str| in_directory("s", directory.path(), 2, cmd);
    let cmd = "head -c 3145728 /dev/zero > f; echo done";
    let result = in_time(house.sessions.exec(write(cmd))).await.expect("run");
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
    assert_eq!(house.sessions.list().len(), 1, "the session is there");
    refusal(&house, write("true")).await;
    fs::remove_file(directory.path().join("f")).expect("removed");
    let cmd = "head -c 3145728 /dev/zero > f; exit 3";
    let result = in_time(house.sessions.exec(write(cmd))).await.expect("run");
    assert_eq!(
        (result.exit_code, result.reason),
        (Some(3), Some(Reason::DiskQuota))
    );
}

/// How a streamed command ended, and what was said of it.
async fn streamed(house: &House, admission: Admission) -> (Option<Reason>, Vec<String>) {
    let begun = house
        .sessions
        .stream(admission, Stdio::Output, Resume::Never);
    let (_control, mut events) = in_time(begun).await.expect("begun").split();
    loop {
        match in_time(events.recv()).await {
            Some(LiveEvent::Exited {
                reason, notices, ..
            }) => return (reason, notices),
            Some(_) => {}
            None => panic!("no end"),
        }
    }
}

#[tokio::test]
async fn what_a_streamed_command_left_too_large_is_told_with_its_end() {
    let (house, directory) = (house(), workspace());
    let write = |bytes: u64| {
        let cmd = format!("head -c {bytes} /dev/zero > f");
        in_directory("s", directory.path(), 2, &cmd)
    };
    assert_eq!(streamed(&house, write(MIB)).await, (None, Vec::new()));
    let (reason, notices) = streamed(&house, write(3 * MIB)).await;
    assert_eq!(reason, None, "nothing stopped it");
    assert!(
        notices[0].starts_with("workspace quota exceeded after execution: used="),
        "{notices:?}"
    );
}

#[tokio::test]
async fn nobody_is_told_of_a_workspace_with_room() {
    let (house, directory) = (house(), workspace());
    let cmd = "head -c 1048576 /dev/zero > f";
    let admission = in_directory("s", directory.path(), 4, cmd);
    let result = in_time(house.sessions.exec(admission)).await.expect("run");
    assert_eq!((result.exit_code, result.reason), (Some(0), None));
    assert_eq!(result.notices, Vec::<String>::new());
}

/// For ever, 4 MiB a file.
const FLOOD: &str = "i=0; while :; do i=$((i+1)); head -c 4194304 /dev/zero > f$i; done";

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
async fn a_flood_is_stopped_while_it_runs() {
    let (house, directory) = (house(), workspace());
    let admission = in_directory("s", directory.path(), 48, FLOOD);
    let began = Instant::now();
    let result = in_time(house.sessions.exec(admission)).await.expect("run");
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
    assert!(taken <= (48 + 64) * MIB, "{} MiB", taken / MIB);
    assert_eq!(house.sessions.list().len(), 1, "the session is there");
}

/// Its program runs before whoever asked for it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_is_stopped_as_it_begins_is_told_why() {
    let (host, directory) = (FakeHost::new(), workspace());
    let house = house_of(host.backend(), |_| {});
    let command = |cmd| in_directory("s", directory.path(), 32, cmd);
    in_time(house.sessions.exec(command("true")))
        .await
        .expect("run");
    let flood = format!("echo $$ > pid; {FLOOD}");
    host.fault(Point::Spawned, Fault::Hangs);
    let stopped = async {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let pid = || read(&directory.path().join("pid"));
        eventually("it runs", || pid().ends_with('\n')).await;
        // Nothing is left of one that has ended but what its parent wants to know.
        let shown = PathBuf::from(format!("/proc/{}/cmdline", pid().trim()));
        eventually("it is stopped", || read(&shown).is_empty()).await;
        host.mend();
    };
    let (result, ()) =
        in_time(async { tokio::join!(house.sessions.exec(command(&flood)), stopped) }).await;
    assert_eq!(result.expect("run").reason, Some(Reason::DiskQuota));
    clear(directory.path());
    let result = in_time(house.sessions.exec(command("exit 3"))).await;
    assert_eq!(result.expect("run").reason, None, "that was before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_managed_processes_are_told_the_same_reason() {
    let (house, directory) = (house(), workspace());
    let admission = in_directory("s", directory.path(), 32, FLOOD);
    let (reason, _) = streamed(&house, admission).await;
    assert_eq!(reason, Some(Reason::DiskQuota));
    clear(directory.path());
    in_time(
        house
            .sessions
            .start_process(&id("s"), script("p", FLOOD), Replace::Refuse),
    )
    .await
    .expect("begun");
    let info = || {
        house
            .sessions
            .process(&id("s"), &process_id("p"))
            .expect("known")
    };
    eventually("it is stopped", || info().status == ProcessStatus::Exited).await;
    assert_eq!(info().reason, Some(Reason::DiskQuota));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_sessions_in_one_directory_the_one_that_may_have_more_goes_on() {
    let (house, directory) = (house(), workspace());
    let patient = in_directory("large", directory.path(), 4096, "sleep 2; echo still here");
    let greedy = in_directory("small", directory.path(), 32, FLOOD);
    let (patient, greedy) = tokio::join!(house.sessions.exec(patient), house.sessions.exec(greedy));
    assert_eq!(greedy.expect("run").reason, Some(Reason::DiskQuota));
    assert_eq!(patient.expect("run").stdout, "still here\n");
    // The quota is the session's, and the directory is what it is.
    refusal(&house, in_directory("third", directory.path(), 32, "true")).await;
    let raised = in_directory("fourth", directory.path(), 512, "echo room");
    let raised = in_time(house.sessions.exec(raised)).await.expect("room");
    assert_eq!(raised.stdout, "room\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_room_stops_those_who_write_and_nobody_else() {
    let (writes, reads) = (workspace(), workspace());
    // More than any disk has.
    let house = house_with(|settings| settings.load.min_free_bytes = Some(u64::MAX / 2));
    let writer = in_directory(
        "writer",
        writes.path(),
        0,
        "head -c 8388608 /dev/zero > f; sleep 60",
    );
    let reader = in_directory("reader", reads.path(), 0, "sleep 3; echo unharmed");
    let (writer, reader) = tokio::join!(house.sessions.exec(writer), house.sessions.exec(reader));
    assert_eq!(writer.expect("run").reason, Some(Reason::DiskQuota));
    assert_eq!(reader.expect("run").stdout, "unharmed\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_watches_when_the_sessions_are_gone() {
    let watchers = || {
        let threads = fs::read_dir("/proc/self/task").expect("threads").flatten();
        let names = threads.filter_map(|it| fs::read_to_string(it.path().join("comm")).ok());
        names.filter(|name| name.trim() == "disk-watch").count()
    };
    let (house, directory) = (house(), workspace());
    for session in ["one", "two"] {
        let admission = in_directory(session, directory.path(), 8, "true");
        in_time(house.sessions.exec(admission)).await.expect("run");
    }
    // A thread gives itself its name, when it gets a processor.
    eventually("one for the file system", || watchers() == 1).await;
    for session in ["one", "two"] {
        in_time(house.sessions.delete(&id(session), "over"))
            .await
            .expect("gone");
    }
    eventually("the thread is gone", || watchers() == 0).await;
}
