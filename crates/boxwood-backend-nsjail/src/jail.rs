//! One nsjail process and the init that it started.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use boxwood_backend::{BoxFuture, StartError, start_step as step};
use boxwood_init::ENTER;
use boxwood_local::{
    BackendState, BootstrapDir, BoxIds, InitConnection, LocalHost, async_fd, lock, program,
};
use boxwood_sys::procfs;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::args::arguments;
use crate::log::Log;

/// nsjail needs about twenty milliseconds; a busy host may need longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long nsjail may take to exit after init has died.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The nsjail process. It exits when its child, init, exits.
pub(crate) struct Jail {
    /// `None` after the box was detached or removed.
    process: Mutex<Option<NsjailProcess>>,
}

enum NsjailProcess {
    /// A child of this daemon.
    Child(Child),
    /// A child of an earlier daemon, which this daemon cannot reap.
    Found(AsyncFd<OwnedFd>),
}

impl Jail {
    /// Finds the nsjail of a box that an earlier daemon created: the parent of its init.
    pub(crate) fn found(init: i32) -> io::Result<Self> {
        let parent = parent_of(init)?;
        let pidfd = pidfd_open(parent, PidfdFlags::empty())?;
        // The pid may have been reused in between; init has another parent then. If nsjail has exited, the
        // parent is the process that inherited init, which must not be killed.
        let is_nsjail = parent_of(init)? == parent && has_uid_map_of(parent, init)?;
        if !is_nsjail || parent == Pid::INIT {
            return Err(io::Error::other("the nsjail process has exited"));
        }
        let process = NsjailProcess::Found(async_fd(pidfd)?);
        Ok(Self {
            process: Mutex::new(Some(process)),
        })
    }
}

impl BackendState for Jail {
    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let process = lock(&self.process).take();
            match process {
                Some(process) => process.end().await,
                None => Ok(()),
            }
        })
    }

    fn record(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn detach(&self) {
        if let Some(NsjailProcess::Child(process)) = lock(&self.process).take() {
            // Dropping it would kill nsjail and the box.
            std::mem::forget(process);
        }
    }
}

impl NsjailProcess {
    /// Waits for nsjail, and kills it if it does not exit by itself. Reaps a child.
    async fn end(self) -> io::Result<()> {
        match self {
            Self::Child(mut process) => match timeout(EXIT_TIMEOUT, process.wait()).await {
                Ok(outcome) => outcome.map(drop),
                Err(_elapsed) => process.kill().await,
            },
            Self::Found(pidfd) => match timeout(EXIT_TIMEOUT, pidfd.readable()).await {
                Ok(outcome) => outcome.map(drop),
                Err(_elapsed) => Ok(pidfd_send_signal(pidfd.get_ref(), Signal::KILL)?),
            },
        }
    }
}

fn parent_of(pid: i32) -> io::Result<Pid> {
    procfs::parent(pid)
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the nsjail process has exited"))
}

/// Returns true if the process has the uid map of a box's init, so it is in the user namespace of the box. Outside of the
/// box, only nsjail is.
fn has_uid_map_of(process: Pid, init: i32) -> io::Result<bool> {
    let map = |pid: i32| fs::read_to_string(format!("/proc/{pid}/uid_map"));
    Ok(map(process.as_raw_nonzero().get())? == map(init)?)
}

/// Starts nsjail and waits for init to connect. On error nothing is left.
pub(crate) async fn open(
    host: &LocalHost,
    nsjail: &Path,
    name: &str,
    ids: &BoxIds,
) -> Result<(Jail, InitConnection), StartError> {
    // Removed once init has connected, so that no other process can connect.
    let bootstrap = BootstrapDir::create_socket_only(host, name)
        .map_err(step("create the bootstrap socket"))?;
    let log = Log::open().map_err(step("open nsjail's log"))?;
    let namespace = host
        .user_namespace(ids)
        .map_err(step("create the user namespace"))?;
    let mut process = spawn(nsjail, &namespace, &bootstrap, &log, ids)?;
    let init = tokio::select! {
        init = bootstrap.accept() => init.map_err(step("accept init's connection")),
        _ = process.wait() => Err(failed(&log)),
        () = tokio::time::sleep(DEADLINE) => {
            Err(step("accept init's connection")(io::ErrorKind::TimedOut.into()))
        }
    };
    let checked = init.and_then(|init| {
        check(&process, init.pid).map_err(step("check the pid of init"))?;
        Ok(init)
    });
    match checked {
        Ok(init) => {
            let process = Mutex::new(Some(NsjailProcess::Child(process)));
            Ok((Jail { process }, init))
        }
        Err(error) => {
            // Killing nsjail kills its child.
            if let Err(error) = process.kill().await {
                tracing::warn!(%error, "failed to kill nsjail");
            }
            Err(error)
        }
    }
}

/// nsjail runs as root of the box's user namespace, with a uid that is not used outside. Its resource usage
/// does not count for the daemon, and it has no privileges on the host.
fn spawn(
    nsjail: &Path,
    namespace: &OwnedFd,
    bootstrap: &BootstrapDir,
    log: &Log,
    ids: &BoxIds,
) -> Result<Child, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(bootstrap.directory(), flags, Mode::empty())
        .map_err(|errno| step("open the directory of the bootstrap socket")(errno.into()))?;
    let program = program().map_err(step("open the init program"))?;
    let daemon = std::process::id();
    Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg(ENTER)
        .arg(format!("/proc/{daemon}/fd/{}", namespace.as_raw_fd()))
        .arg(nsjail)
        .args(arguments(ids.identity.init_uid))
        .env_clear()
        .current_dir("/")
        // Init finds the bootstrap socket in this directory, even if it may not traverse the path.
        .stdin(directory)
        .stdout(program.try_clone().map_err(step("open the init program"))?)
        .stderr(log.stdio().map_err(step("open nsjail's log"))?)
        // Signals from the daemon's terminal must not reach nsjail.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(step("start nsjail"))
}

fn failed(log: &Log) -> StartError {
    StartError::Unavailable {
        why: format!("nsjail failed to create a box: {}", log.last_lines()),
        hint:
            "run `boxwood doctor`; nsjail and its libraries must be readable by every user, and it \
               needs new namespaces and a `/proc` without mounts over it, which a container \
               has only with `--privileged`"
                .to_owned(),
    }
}

/// Checks that the connected process is the first of a PID namespace and nsjail's child.
fn check(process: &Child, init: i32) -> io::Result<()> {
    let nsjail = process
        .id()
        .ok_or_else(|| io::Error::other("nsjail has exited"))?;
    let is_child = procfs::parent(init).map(i32::cast_unsigned) == Some(nsjail);
    if is_child && procfs::is_first_of_namespace(init)? {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "process {init} connected, but nsjail did not start it"
    )))
}
