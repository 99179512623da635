//! A process of the fake runtime: a real child process, or a task.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_agent::{Answer, BoxesError};
use boxwood_api::{ErrorCode, ProcessInfo, ProcessSpec, ProcessStatus, SessionId};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::hosting::{ProcessExit, ProcessIo};

/// The task's end of its pipes.
pub(super) struct Pipes {
    pub(super) input: mpsc::UnboundedReceiver<Bytes>,
    pub(super) process: Arc<Process>,
}

impl Pipes {
    pub(super) fn write_stdout(&self, line: &str) {
        self.process.push_output(Bytes::from(format!("{line}\n")));
    }

    pub(super) fn write_stderr(&self, text: &str) {
        let mut stderr = self.process.stderr.lock().expect("no panic");
        stderr.push_str(text);
    }
}

pub(super) struct Process {
    pub(super) session: SessionId,
    pub(super) spec: ProcessSpec,
    input: Mutex<Option<mpsc::UnboundedSender<Bytes>>>,
    refuses_input: AtomicBool,
    output: Mutex<Output>,
    output_changed: Notify,
    pub(super) stderr: Mutex<String>,
    exit: watch::Sender<Option<ProcessExit>>,
    pub(super) kill: CancellationToken,
}

#[derive(Default)]
struct Output {
    chunks: VecDeque<Bytes>,
    /// Incremented for each reader, so that an older one notices its replacement.
    reader: u64,
    has_ended: bool,
}

impl Process {
    pub(super) fn new(session: &SessionId, spec: ProcessSpec) -> (Arc<Self>, Pipes) {
        let (input, receiver) = mpsc::unbounded_channel();
        let process = Arc::new(Self {
            session: session.clone(),
            spec,
            input: Mutex::new(Some(input)),
            refuses_input: AtomicBool::new(false),
            output: Mutex::default(),
            output_changed: Notify::new(),
            stderr: Mutex::default(),
            exit: watch::Sender::new(None),
            kill: CancellationToken::new(),
        });
        let pipes = Pipes {
            input: receiver,
            process: Arc::clone(&process),
        };
        (process, pipes)
    }

    /// Starts a real child in its own process group, so that all its descendants can be killed.
    pub(super) fn spawn(mut pipes: Pipes, cwd: &std::path::Path) -> std::io::Result<()> {
        let process = Arc::clone(&pipes.process);
        let mut child = tokio::process::Command::new(&process.spec.command)
            .args(&process.spec.args)
            .envs(&process.spec.env)
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut stdout = child.stdout.take().expect("a pipe");
        let mut stderr = child.stderr.take().expect("a pipe");
        tokio::spawn(async move {
            while let Some(bytes) = pipes.input.recv().await {
                if stdin.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        let stdout_process = Arc::clone(&process);
        let reading_stdout = tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = stdout.read(&mut buffer).await {
                stdout_process.push_output(Bytes::copy_from_slice(&buffer[..count]));
            }
        });
        let stderr_process = Arc::clone(&process);
        let reading_stderr = tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                let mut text = stderr_process.stderr.lock().expect("no panic");
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        tokio::spawn(async move {
            let group = child.id();
            let status = tokio::select! {
                status = child.wait() => status.ok(),
                () = process.kill.cancelled() => {
                    drop(child.kill().await);
                    None
                }
            };
            // Descendants are killed with the box.
            if let Some(group) = group {
                let group = format!("-{group}");
                let mut kill = tokio::process::Command::new("kill");
                let kill = kill.args(["-KILL", "--", &group]).stderr(Stdio::null());
                drop(kill.status().await);
            }
            let drained = futures_util::future::join(reading_stdout, reading_stderr);
            drop(tokio::time::timeout(std::time::Duration::from_secs(1), drained).await);
            process.end(ProcessExit {
                exit_code: status.and_then(|status| status.code()),
                why: None,
            });
        });
        Ok(())
    }

    /// Simulates a process that closed its stdin and keeps running.
    pub(super) fn refuse_input(&self) {
        self.refuses_input.store(true, Ordering::Relaxed);
    }

    pub(super) fn push_output(&self, bytes: Bytes) {
        self.output
            .lock()
            .expect("no panic")
            .chunks
            .push_back(bytes);
        self.output_changed.notify_waiters();
    }

    pub(super) fn end(&self, exit: ProcessExit) {
        self.output.lock().expect("no panic").has_ended = true;
        self.exit.send_if_modified(|stored| {
            let is_first = stored.is_none();
            stored.get_or_insert(exit);
            is_first
        });
        self.output_changed.notify_waiters();
    }

    pub(super) fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    pub(super) async fn exited(&self) -> ProcessExit {
        let mut exit = self.exit.subscribe();
        let exit = exit.wait_for(Option::is_some).await.expect("it is held");
        exit.clone().expect("there is one")
    }

    pub(super) fn info(&self) -> ProcessInfo {
        let exit = self.exit.borrow().clone();
        ProcessInfo {
            session_id: self.session.clone(),
            process_id: self.spec.process_id.clone(),
            status: if exit.is_none() {
                ProcessStatus::Running
            } else {
                ProcessStatus::Exited
            },
            command: self.spec.command.clone(),
            args: self.spec.args.clone(),
            cwd: self.spec.cwd.clone(),
            env_keys: self.spec.env.keys().cloned().collect(),
            attached: false,
            started_at: Timestamp::UNIX_EPOCH,
            exited_at: None,
            exit_code: exit.and_then(|exit| exit.exit_code),
            reason: None,
            stderr_preview: String::new(),
        }
    }

    pub(super) fn attach(self: &Arc<Self>) -> Box<dyn ProcessIo> {
        let mut output = self.output.lock().expect("no panic");
        output.reader += 1;
        let number = output.reader;
        drop(output);
        self.output_changed.notify_waiters();
        Box::new(Attached {
            process: Arc::clone(self),
            number,
        })
    }

    /// Simulates a lost connection.
    pub(super) fn drop_reader(&self) {
        self.output.lock().expect("no panic").reader += 1;
        self.output_changed.notify_waiters();
    }
}

struct Attached {
    process: Arc<Process>,
    number: u64,
}

impl ProcessIo for Attached {
    fn next(&self) -> BoxFuture<'_, Option<Bytes>> {
        async move {
            loop {
                let output_changed = self.process.output_changed.notified();
                tokio::pin!(output_changed);
                output_changed.as_mut().enable();
                {
                    let mut output = self.process.output.lock().expect("no panic");
                    if output.reader != self.number {
                        return None;
                    }
                    if let Some(bytes) = output.chunks.pop_front() {
                        return Some(bytes);
                    }
                    if output.has_ended {
                        return None;
                    }
                }
                output_changed.await;
            }
        }
        .boxed()
    }

    fn send(&self, bytes: Bytes) -> BoxFuture<'_, Answer<()>> {
        let input = self.process.input.lock().expect("no panic");
        let is_open = !self.process.refuses_input.load(Ordering::Relaxed);
        let sent = input
            .as_ref()
            .is_some_and(|input| is_open && input.send(bytes).is_ok());
        let answer = if sent { Ok(()) } else { Err(closed()) };
        std::future::ready(answer).boxed()
    }

    fn close_input(&self) {
        self.process.input.lock().expect("no panic").take();
    }

    fn exited(&self) -> BoxFuture<'_, ProcessExit> {
        self.process.exited().boxed()
    }
}

fn closed() -> BoxesError {
    BoxesError {
        code: ErrorCode::ManagedProcessNotFound,
        message: "it takes no more input".to_owned(),
        hint: None,
        reached: true,
    }
}
