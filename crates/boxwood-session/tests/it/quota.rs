//! What a session's commands may write to a directory of the host.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use boxwood_api::{ErrorCode, ExecStatus, MountMode, ProcessStatus, Reason};
use boxwood_backend::{FileCall, OpenFor, Stdio};
use boxwood_policy::Admission;
use boxwood_session::{LiveEvent, Replace, Resume, SessionError};

use crate::{House, asked_with, eventually, house, house_with, id, in_time, process_id, script};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_managed_processes_are_told_the_same_reason() {
    let (house, directory) = (house(), workspace());
    let admission = in_directory("s", directory.path(), 32, FLOOD);
    let live = in_time(
        house
            .sessions
            .stream(admission, Stdio::Output, Resume::Never),
    )
    .await
    .expect("begun");
    let (_control, mut events) = live.split();
    let exited = loop {
        match in_time(events.recv()).await {
            Some(LiveEvent::Exited { reason, .. }) => break reason,
            Some(_) => {}
            None => panic!("no end"),
        }
    };
    assert_eq!(exited, Some(Reason::DiskQuota));
    for file in fs::read_dir(directory.path())
        .expect("a directory")
        .flatten()
    {
        fs::remove_file(file.path()).expect("removed");
    }
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
    assert_eq!(watchers(), 1, "one for the file system");
    for session in ["one", "two"] {
        in_time(house.sessions.delete(&id(session), "over"))
            .await
            .expect("gone");
    }
    eventually("the thread is gone", || watchers() == 0).await;
}
