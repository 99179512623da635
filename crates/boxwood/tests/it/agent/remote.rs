//! Agents that use the boxes of another daemon, which is stopped and restarted during calls.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use boxwood_agent::{
    Agent, AgentSettings, Boxes as _, Deadlines, NoProgress, Progress, Remote, Running, Stream,
    ToolError, runtime_endpoint,
};
use boxwood_api::{AgentQuery, AgentState, SessionId, SpecRequest, ToolAnswer, ToolCall};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::support::daemon::Daemon;
use crate::support::host::wait_until;

/// Shorter than the timeout of a call, and enough for an immediate refusal on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(12);

/// An agent with its boxes in a daemon, as a program would embed it.
struct Platform {
    runtime: Runtime,
    agent: Agent,
    remote: Remote,
}

impl Platform {
    fn of_socket(socket: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let endpoint = runtime_endpoint(&format!("unix://{}", socket.display()));
        let remote = Remote::new(endpoint.expect("an address"), None);
        Self {
            agent: Agent::new(Arc::new(remote.clone()), AgentSettings::default()),
            runtime,
            remote,
        }
    }

    fn agent(&self) -> Agent {
        self.agent.clone()
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Starts `exec` and forwards its output.
    fn begin(&self, command: &str) -> Exec {
        let (sender, output) = mpsc::channel();
        let (agent, call) = (self.agent(), exec(command));
        let ended = self
            .runtime
            .spawn(async move { agent.call("exec", call, &OutputSender(sender)).await });
        Exec { output, ended }
    }

    fn exec(&self, command: &str) -> Result<ToolAnswer, ToolError> {
        let agent = self.agent();
        self.wait(agent.call("exec", exec(command), &NoProgress))
    }

    fn dispose(self) {
        self.runtime.block_on(self.remote.dispose());
    }
}

struct Exec {
    output: mpsc::Receiver<String>,
    ended: JoinHandle<Result<ToolAnswer, ToolError>>,
}

impl Exec {
    /// Waits until it has written this.
    fn wait_for_output(&self, text: &str) {
        let mut received = String::new();
        while !received.contains(text) {
            let chunk = self.output.recv_timeout(Duration::from_secs(20));
            received +=
                &chunk.unwrap_or_else(|_| panic!("{text:?} did not come after {received:?}"));
        }
    }

    fn end(self, platform: &Platform) -> ToolAnswer {
        let ended = platform.wait(self.ended).expect("no panic");
        ended.expect("a result")
    }
}

struct OutputSender(mpsc::Sender<String>);

impl Progress for OutputSender {
    fn output(&self, _stream: Stream, text: &str) {
        // The test may have heard enough.
        let _ = self.0.send(text.to_owned());
    }
}

fn exec(command: &str) -> ToolCall {
    let mut call = ToolCall {
        query: AgentQuery {
            launcher_type: Some("person".to_owned()),
            launcher_id: Some("ada".into()),
            ..AgentQuery::default()
        },
        ..ToolCall::default()
    };
    call.arguments.insert("command".to_owned(), command.into());
    call.arguments.insert("timeout_sec".to_owned(), 60.into());
    call
}

fn socket(daemon: &Daemon) -> PathBuf {
    daemon.directory().join("state/run/boxwood.sock")
}

#[test]
fn a_killed_daemon_loses_nothing_of_a_command() {
    let mut daemon = Daemon::start();
    let directory = daemon.directory().to_owned();
    let platform = Platform::of_socket(&socket(&daemon));
    assert!(platform.remote.shares_filesystem());
    let command = "echo one; echo uno >&2; sleep 4; echo two; echo due >&2; exit 7";
    let running = platform.begin(command);
    running.wait_for_output("one");
    let next = Daemon::start_in(daemon.kill());
    assert_eq!(next.directory(), directory);
    let answer = running.end(&platform);
    assert_eq!(answer.result["stdout"], "one\ntwo\n", "{answer:?}");
    assert_eq!(answer.result["stderr"], "uno\ndue\n");
    assert_eq!(answer.result["exit_code"], 7);
    assert_eq!(answer.result["ok"], false);
    assert_eq!(
        platform.exec("echo on").expect("works").result["stdout"],
        "on\n"
    );
    platform.dispose();
}

#[test]
fn a_daemon_that_is_suspended_for_a_while_loses_nothing_of_a_command() {
    let daemon = Daemon::start();
    let platform = Platform::of_socket(&socket(&daemon));
    let running = platform.begin("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 1; done");
    running.wait_for_output("2\n");
    daemon.signal("STOP");
    let boxes = platform.remote.clone().with_deadlines(Deadlines {
        runtime: Duration::from_mins(1),
        ..Deadlines::default()
    });
    let status_request = platform.runtime.spawn(async move { boxes.status().await });
    std::thread::sleep(Duration::from_secs(6));
    daemon.signal("CONT");
    let answer = running.end(&platform);
    let lines: Vec<String> = (1..=12).map(|number| format!("{number}\n")).collect();
    let expected = lines.concat();
    assert_eq!(answer.result["stdout"], expected, "{answer:?}");
    platform
        .wait(status_request)
        .expect("no panic")
        .expect("answered in the end");
    platform.dispose();
}

#[test]
fn a_daemon_that_starts_later_is_used() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("state/run/boxwood.sock");
    let platform = Platform::of_socket(&socket);
    let begin = Instant::now();
    let error = platform.exec("echo no").expect_err("refused");
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    assert_eq!(error.state, Some(AgentState::Unavailable), "{error:?}");
    assert!(
        error.message.contains("box runtime connection failed"),
        "{error}"
    );
    let status = platform.wait(platform.agent().status());
    assert!(!status.available && status.state == AgentState::Unavailable);

    let _daemon = Daemon::start_in(directory);
    let status = platform.wait(platform.agent().status());
    assert!(status.available, "{status:?}");
    assert_eq!(
        platform.exec("echo yes").expect("works").result["stdout"],
        "yes\n"
    );
    platform.dispose();
}

#[test]
fn calls_to_a_daemon_that_was_stopped_are_refused_at_once() {
    let mut daemon = Daemon::start();
    let platform = Platform::of_socket(&socket(&daemon));
    platform.exec("true").expect("works");
    assert_eq!(daemon.terminate(), Some(0));
    let begin = Instant::now();
    let error = platform.exec("echo no").expect_err("no runtime");
    assert_eq!(error.state, Some(AgentState::Unavailable), "{error:?}");
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    let begin = Instant::now();
    platform.exec("echo no").expect_err("no runtime");
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    assert_eq!(platform.wait(platform.agent().sessions()), Vec::new());
    platform.dispose();
}

/// A platform cancels a command by dropping it.
#[test]
fn a_command_that_is_dropped_ends_in_the_box() {
    let daemon = Daemon::start();
    let platform = Platform::of_socket(&socket(&daemon));
    let token = crate::support::host::token("dropped");
    let spec = SpecRequest {
        session_id: Some(SessionId::new("s").expect("legal")),
        cmd: format!("echo on; {}", crate::support::host::waiting(&token)),
        timeout_sec: Some(60),
        ..SpecRequest::default()
    };
    let boxes = platform.remote.clone();
    let mut begun = platform.wait(boxes.exec(spec)).expect("begins");
    assert_eq!(begun.backend, "native");
    let first = platform.wait(begun.command.next()).expect("output");
    assert_eq!(first, Running::Stdout("on\n".into()));
    wait_until("it to run", || {
        !crate::support::host::pids(&token).is_empty()
    });
    platform.runtime.block_on(async move { drop(begun) });
    wait_until("its end", || crate::support::host::pids(&token).is_empty());
    platform.dispose();
}
