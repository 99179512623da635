//! Boxes of the fake host outlive a daemon that was killed, as real ones do.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_backend::{
    AdoptError, Adopted, Backend, ExitStatus, Keep, Process, Progress, Sandbox, SpawnRequest,
    StartRecorder, Stdio,
};
use boxwood_test_support::{FakeBackend, FakeHost, Fault, Point, admission};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn started(backend: &FakeBackend) -> Arc<dyn Sandbox> {
    let admitted = admission("s", "true", |_| {}).expect("policy allows it");
    let (progress, recorder) = (Progress::silent(), StartRecorder::none());
    let starting = backend.start(&admitted.spec, &progress, &recorder);
    starting.await.expect("the box starts")
}

fn request(script: &str, keep: Option<Keep>) -> SpawnRequest {
    SpawnRequest {
        argv: vec!["@".to_owned(), script.to_owned()],
        env: std::collections::BTreeMap::default(),
        cwd: "/workspace".to_owned(),
        stdio: Stdio::Pipes,
        keep,
    }
}

fn kept(note: &str) -> Keep {
    let file = tempfile::tempfile().expect("a file");
    Keep {
        note: note.as_bytes().to_owned(),
        files: vec![Arc::new(OwnedFd::from(file))],
    }
}

/// The only box on the host, taken over by a new daemon.
async fn adopted(host: &Arc<FakeHost>) -> (Arc<FakeBackend>, Adopted) {
    let backend = host.backend();
    let left = backend.left_running().await;
    let [handle] = &left[..] else {
        panic!("one box was left, not {left:?}");
    };
    let adopted = backend.adopt(handle).await.expect("it is taken over");
    backend.finish_adoption().await;
    (backend, adopted)
}

async fn all_output(process: &mut Process) -> String {
    let mut text = String::new();
    process
        .stdout
        .read_to_string(&mut text)
        .await
        .expect("read");
    text
}

#[tokio::test]
async fn a_killed_daemons_box_is_taken_over_with_what_it_kept() {
    let host = FakeHost::new();
    let backend = host.backend();
    let sandbox = started(&backend).await;
    sandbox.remember(b"record").await.expect("remembered");
    let running = sandbox.spawn(request("echo; exit 3", Some(kept("one"))));
    let mut running = running.await.expect("it starts");
    let ended = sandbox.spawn(request("say last words; exit 4", Some(kept("two"))));
    let ended = ended.await.expect("it starts");
    let unkept = sandbox.spawn(request("stay", None)).await.expect("starts");
    let stdin = running.stdin.as_mut().expect("a pipe");
    stdin.write_all(b"before ").await.expect("written");
    host.crash();
    drop((running, ended, unkept, sandbox, backend));

    let (_backend, mut adopted) = adopted(&host).await;
    assert_eq!(adopted.record, b"record");
    assert!(adopted.sandbox.is_alive());
    let notes: Vec<_> = adopted
        .processes
        .iter()
        .map(|kept| &kept.note[..])
        .collect();
    assert_eq!(notes, [b"one", b"two"]);
    assert_eq!(adopted.processes[0].files.len(), 1);
    let mut ended = adopted.processes.remove(1).process;
    assert_eq!(all_output(&mut ended).await, "last words\n");
    assert_eq!(ended.control.wait().await.status, ExitStatus::Code(4));
    let mut running = adopted.processes.remove(0).process;
    let mut stdin = running.stdin.take().expect("a pipe");
    stdin.write_all(b"after").await.expect("written");
    drop(stdin);
    assert_eq!(all_output(&mut running).await, "before after");
    assert_eq!(running.control.wait().await.status, ExitStatus::Code(3));
    drop((running, ended));
    // A program's own thread may still be on its way out.
    for _ in 0..500 {
        if host.boxes()[0].programs() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(host.boxes()[0].programs(), 0, "nothing is kept any more");
    adopted.sandbox.stop().await.expect("stopped");
    assert!(host.boxes().is_empty());
}

#[tokio::test]
async fn what_a_killed_daemon_holds_does_nothing() {
    let host = FakeHost::new();
    let backend = host.backend();
    let sandbox = started(&backend).await;
    sandbox.remember(b"record").await.expect("remembered");
    host.crash();
    let moment = Duration::from_millis(20);
    let stopping = tokio::time::timeout(moment, sandbox.stop()).await;
    assert!(stopping.is_err(), "it hangs");
    drop(sandbox);
    assert!(host.boxes()[0].is_alive());
}

#[tokio::test]
async fn a_detached_box_continues() {
    let host = FakeHost::new();
    let backend = host.backend();
    let sandbox = started(&backend).await;
    sandbox.remember(b"record").await.expect("remembered");
    let process = sandbox.spawn(request("echo", Some(kept("one")))).await;
    sandbox.detach();
    drop((process, sandbox));
    assert_eq!(host.boxes()[0].programs(), 1);
    let (_backend, adopted) = adopted(&host).await;
    assert!(adopted.processes[0].process.stdin.is_some());
}

#[tokio::test]
async fn a_box_without_a_record_is_never_adopted_and_goes() {
    let host = FakeHost::new();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&recorded);
    let recorder = StartRecorder::new(move |handle| {
        writes.lock().expect("not poisoned").push(handle);
        Box::pin(async { Ok(()) })
    });
    host.fault(Point::Made, Fault::Crashes);
    let backend = host.backend();
    let admitted = admission("s", "true", |_| {}).expect("policy allows it");
    let progress = Progress::silent();
    tokio::select! {
        _ = backend.start(&admitted.spec, &progress, &recorder) => panic!("it was killed"),
        () = backend.killed() => {}
    }
    let backend = host.backend();
    let left = backend.left_running().await;
    assert_eq!(left, *recorded.lock().expect("not poisoned"));
    let refused = backend.adopt(&left[0]).await;
    assert!(matches!(refused, Err(AdoptError::Unfinished)));
    backend.finish_adoption().await;
    assert!(host.boxes().is_empty());
}

#[tokio::test]
async fn a_start_that_fails_leaves_nothing() {
    let host = FakeHost::new();
    let backend = host.backend();
    let admitted = admission("s", "true", |_| {}).expect("policy allows it");
    for point in [Point::BeforeRecord, Point::AfterRecord, Point::Made] {
        host.fault(point, Fault::Fails);
        let (progress, recorder) = (Progress::silent(), StartRecorder::none());
        let starting = backend.start(&admitted.spec, &progress, &recorder);
        assert!(starting.await.is_err(), "{point:?}");
        assert!(host.boxes().is_empty(), "{point:?}");
    }
}

#[tokio::test]
async fn output_moves_into_a_file_and_input_out_of_one() {
    let host = FakeHost::new();
    let backend = host.backend();
    let sandbox = started(&backend).await;
    let mut process = sandbox.spawn(request("echo", None)).await.expect("starts");
    let mut input = tempfile::tempfile().expect("a file");
    std::io::Write::write_all(&mut input, b"to and fro").expect("written");
    std::io::Seek::rewind(&mut input).expect("rewound");
    let mut stdin = process.stdin.take().expect("a pipe");
    let fed = std::future::poll_fn(|context| {
        let input = std::os::fd::AsFd::as_fd(&input);
        Pin::new(&mut *stdin).poll_feed(context, input, 1024)
    });
    assert_eq!(fed.await.expect("fed"), 10);
    let output = tempfile::tempfile().expect("a file");
    let moved = std::future::poll_fn(|context| {
        let output = std::os::fd::AsFd::as_fd(&output);
        Pin::new(&mut *process.stdout).poll_move(context, output, 1024)
    });
    assert_eq!(moved.await.expect("moved"), 10);
    let mut text = [0; 10];
    std::os::unix::fs::FileExt::read_exact_at(&output, &mut text, 0).expect("read");
    assert_eq!(&text, b"to and fro");
}
