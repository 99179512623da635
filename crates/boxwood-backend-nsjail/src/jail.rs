//! One nsjail process and the init that it started.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_backend::{BoxFuture, StartError};
use boxwood_init::ENTER;
use boxwood_local::{BoxIds, Caller, LocalHost, Meeting, Shell, program, watch};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use crate::args::arguments;
use crate::log::Log;

/// nsjail needs some twenty milliseconds; a busy host may need longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// nsjail ends when init has, which is dead by then.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// The nsjail process. It ends when its child, init, does.
pub(crate) struct Jail {
    /// `None` once the box was let go of, or has gone.
    process: Mutex<Option<Warden>>,
}

enum Warden {
    /// Our own child.
    Child(Child),
    /// A child of an earlier daemon's, which somebody else reaps.
    Found(AsyncFd<OwnedFd>),
}

impl Jail {
    /// That of a box which an earlier daemon made: the parent of its init.
    pub(crate) fn found(init: i32) -> io::Result<Self> {
        let parent = parent_of(init)?;
        let pidfd = pidfd_open(parent, PidfdFlags::empty())?;
        // Its number may have become somebody else's in between; then init has another parent now. And
        // whoever took in the child of an nsjail that ended is not ours to end.
        let is_it = parent_of(init)? == parent && has_ids_of(parent, init)?;
        if !is_it || parent == Pid::INIT {
            return Err(io::Error::other("its nsjail has ended"));
        }
        let warden = Warden::Found(watch(pidfd)?);
        Ok(Self {
            process: Mutex::new(Some(warden)),
        })
    }

    fn process(&self) -> MutexGuard<'_, Option<Warden>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shell for Jail {
    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let warden = self.process().take();
            match warden {
                Some(Warden::Child(mut process)) => end(&mut process).await,
                Some(Warden::Found(pidfd)) => end_found(&pidfd).await,
                None => Ok(()),
            }
        })
    }

    fn record(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn let_go(&self) {
        if let Some(Warden::Child(process)) = self.process().take() {
            // Dropping it would kill nsjail, and with it the box.
            std::mem::forget(process);
        }
    }
}

/// Reaps it, by force when it does not end by itself.
async fn end(process: &mut Child) -> io::Result<()> {
    match tokio::time::timeout(LAST_MOMENT, process.wait()).await {
        Ok(outcome) => outcome.map(drop),
        Err(_elapsed) => process.kill().await,
    }
}

async fn end_found(pidfd: &AsyncFd<OwnedFd>) -> io::Result<()> {
    match tokio::time::timeout(LAST_MOMENT, pidfd.readable()).await {
        Ok(outcome) => outcome.map(drop),
        Err(_elapsed) => Ok(pidfd_send_signal(pidfd.get_ref(), Signal::KILL)?),
    }
}

fn parent_of(pid: i32) -> io::Result<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let number = parent.and_then(|number| number.trim().parse().ok());
    number
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("its nsjail has ended"))
}

/// Whether a process is in the user namespace of a box, which only nsjail is beside the box itself.
fn has_ids_of(process: Pid, init: i32) -> io::Result<bool> {
    let map = |pid: i32| fs::read_to_string(format!("/proc/{pid}/uid_map"));
    Ok(map(process.as_raw_nonzero().get())? == map(init)?)
}

fn step(step: &str) -> impl FnOnce(io::Error) -> StartError {
    let step = step.to_owned();
    move |source| StartError::Step { step, source }
}

/// Starts nsjail and waits for init's call. When it fails nothing is left.
pub(crate) async fn open(
    host: &LocalHost,
    nsjail: &Path,
    name: &str,
    ids: &BoxIds,
) -> Result<(Jail, Caller), StartError> {
    // Removed as soon as init has called: nobody else may.
    let meeting = Meeting::arrange_socket(host, name).map_err(step("make its socket"))?;
    let log = Log::open().map_err(step("open nsjail's log"))?;
    let namespace = host
        .user_namespace(ids)
        .map_err(step("make its user namespace"))?;
    let mut process = spawn(nsjail, &namespace, &meeting, &log, ids)?;
    let caller = tokio::select! {
        caller = meeting.call() => caller.map_err(step("hear from init")),
        _ = process.wait() => Err(failed(&log)),
        () = tokio::time::sleep(DEADLINE) => {
            Err(step("hear from init")(io::ErrorKind::TimedOut.into()))
        }
    };
    let checked = caller.and_then(|caller| {
        check(&process, caller.pid).map_err(step("recognise its init"))?;
        Ok(caller)
    });
    match checked {
        Ok(caller) => {
            let process = Mutex::new(Some(Warden::Child(process)));
            Ok((Jail { process }, caller))
        }
        Err(error) => {
            // With nsjail its child dies.
            if let Err(error) = process.kill().await {
                tracing::warn!(%error, "nsjail could not be ended");
            }
            Err(error)
        }
    }
}

/// nsjail runs as root of the box's user namespace, which is nobody's outside. So what the box uses up
/// is not the daemon's, and nsjail has no power over the host.
fn spawn(
    nsjail: &Path,
    namespace: &OwnedFd,
    meeting: &Meeting,
    log: &Log,
    ids: &BoxIds,
) -> Result<Child, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(meeting.directory(), flags, Mode::empty())
        .map_err(|errno| step("open its socket's directory")(errno.into()))?;
    let program = program().map_err(step("open the init program"))?;
    let daemon = std::process::id();
    Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg(ENTER)
        .arg(format!("/proc/{daemon}/fd/{}", namespace.as_raw_fd()))
        .arg(nsjail)
        .args(arguments(ids.identity.init_uid))
        .env_clear()
        .current_dir("/")
        // Init finds the socket there, whatever the way to it is open to.
        .stdin(directory)
        .stdout(program.try_clone().map_err(step("open the init program"))?)
        .stderr(log.stdio().map_err(step("open nsjail's log"))?)
        // A signal from the daemon's terminal is the daemon's.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(step("start nsjail"))
}

fn failed(log: &Log) -> StartError {
    StartError::Unavailable {
        why: format!("nsjail could not make a box: {}", log.last_words()),
        hint: "run `boxwood doctor`; nsjail and its libraries must be open to every user, and it \
               needs new namespaces and a `/proc` that nothing is mounted over, which a container \
               has only with `--privileged`"
            .to_owned(),
    }
}

/// Whoever called is the first process of a process namespace, and nsjail's own child.
fn check(process: &Child, caller: i32) -> io::Result<()> {
    let nsjail = process
        .id()
        .ok_or_else(|| io::Error::other("nsjail has ended"))?;
    let status = fs::read_to_string(format!("/proc/{caller}/status"))?;
    if is_first_child(&status, nsjail) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "process {caller} called, and it is not the one that nsjail started"
    )))
}

fn is_first_child(status: &str, parent: u32) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let is_child = field("PPid:").is_some_and(|pid| pid.trim() == parent.to_string());
    // One number for each namespace, ours first: a single one means that it is in ours.
    let numbers: Vec<&str> = field("NSpid:")
        .map(|numbers| numbers.split_whitespace().collect())
        .unwrap_or_default();
    is_child && numbers.len() > 1 && numbers.last() == Some(&"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_process_of_the_jail_is_its_init() {
        let status = |parent: u32, numbers: &str| {
            format!("Name:\tboxwood-init\nPPid:\t{parent}\nNSpid:\t{numbers}\n")
        };
        assert!(is_first_child(&status(7, "9\t1"), 7));
        assert!(!is_first_child(&status(8, "9\t1"), 7), "somebody else's");
        assert!(!is_first_child(&status(7, "9\t2"), 7), "a later process");
        assert!(!is_first_child(&status(7, "1"), 7), "no jail at all");
        assert!(!is_first_child("", 7));
    }
}
