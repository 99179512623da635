//! The new daemon's side of a takeover. Blocking, because it runs before the Tokio runtime exists.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use boxwood_sys::peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::connect;

use super::VERSION;
use super::wire::{self, Confirm, Request, Response, SocketPath};
use crate::listen::sockets::{Socket, SocketError, SocketOwner};
use crate::state_dir::{StateDirError, StateLock, pid_suffix};

/// The running daemon may itself still be starting.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time to detach boxes and exit, in addition to the drain time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

const RETRY: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("the daemon{} on `{}` does not respond to takeover requests", pid_suffix(*pid), state_dir.display())]
    NoResponse {
        state_dir: PathBuf,
        pid: Option<u32>,
        source: Option<io::Error>,
    },
    #[error("the daemon{} on `{}` refused the takeover: {why}", pid_suffix(Some(*pid)), state_dir.display())]
    Refused {
        state_dir: PathBuf,
        pid: u32,
        why: String,
    },
    #[error("the takeover socket of `{}` belongs to a process of user {uid}, not to the daemon's user", state_dir.display())]
    WrongUser { state_dir: PathBuf, uid: u32 },
    #[error(
        "the daemon (pid {pid}) handed over its sockets but did not exit within {waited_sec} s"
    )]
    NotExited { pid: u32, waited_sec: u64 },
    #[error("the daemon handed over an unusable socket")]
    Socket(#[from] SocketError),
}

impl TakeoverError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::NoResponse { pid, .. } => {
                let pid = pid.map_or("PID".to_owned(), |pid| pid.to_string());
                Some(format!(
                    "it hangs, was started with --stdio or --until-stdin-closes, or is too old for \
                     takeover; kill it (`kill -9 {pid}` keeps its boxes) and start without --takeover"
                ))
            }
            Self::NotExited { pid, .. } => Some(format!(
                "kill it with `kill -9 {pid}`, which keeps its boxes; then start the daemon again"
            )),
            Self::Refused { .. } => Some("stop it, and start without --takeover".to_owned()),
            Self::WrongUser { .. } => {
                Some("run the command as the user of the running daemon".to_owned())
            }
            Self::StateDir(_) | Self::Socket(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Takeover {
    /// No daemon uses the state directory.
    NotRunning(StateLock),
    /// The sockets were received. The running daemon continues until [`Offer::accept`].
    Offered(Offer),
}

#[derive(Debug)]
pub(crate) struct Offer {
    connection: OwnedFd,
    state_dir: PathBuf,
    drain: Duration,
    pub(crate) pid: u32,
    pub(crate) sockets: Vec<Socket>,
}

impl Offer {
    /// Confirms the takeover and waits until the running daemon has exited.
    pub(crate) fn accept(&self) -> Result<StateLock, TakeoverError> {
        wire::send(&self.connection, &Confirm { go: true }, &[])
            .map_err(|source| no_response(&self.state_dir, Some(self.pid), Some(source)))?;
        let timeout = self.drain + EXIT_TIMEOUT;
        match StateLock::wait(&self.state_dir, Instant::now() + timeout) {
            Err(StateDirError::InUse { .. }) => Err(TakeoverError::NotExited {
                pid: self.pid,
                waited_sec: timeout.as_secs(),
            }),
            lock => Ok(lock?),
        }
    }
}

/// Requests the listening sockets of the daemon on `state_dir`.
pub(crate) fn request(state_dir: &Path) -> Result<Takeover, TakeoverError> {
    request_within(state_dir, RESPONSE_TIMEOUT)
}

fn request_within(state_dir: &Path, timeout: Duration) -> Result<Takeover, TakeoverError> {
    let until = Instant::now() + timeout;
    loop {
        let holder = match StateLock::take(state_dir) {
            Ok(lock) => return Ok(Takeover::NotRunning(lock)),
            Err(StateDirError::InUse { pid, .. }) => pid,
            Err(error) => return Err(error.into()),
        };
        // The daemon may be starting, or handing over to another successor. Retry.
        let error = match exchange(state_dir, until) {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        if Instant::now() >= until {
            return Err(no_response(state_dir, holder, Some(error)));
        }
        std::thread::sleep(RETRY);
    }
}

fn no_response(state_dir: &Path, pid: Option<u32>, source: Option<io::Error>) -> TakeoverError {
    TakeoverError::NoResponse {
        state_dir: state_dir.to_owned(),
        pid,
        source,
    }
}

/// The outer error can be retried, the inner one is final.
fn exchange(state_dir: &Path, until: Instant) -> io::Result<Result<Takeover, TakeoverError>> {
    let connection = wire::socket()?;
    let socket_path = SocketPath::new(state_dir)?;
    connect(&connection, &socket_path.address)?;
    let uid = peer::uid(connection.as_fd())?;
    if !wire::is_trusted(uid) {
        return Ok(Err(TakeoverError::WrongUser {
            state_dir: state_dir.to_owned(),
            uid,
        }));
    }
    wire::send(&connection, &Request { version: VERSION }, &[])?;
    wait_readable(&connection, until)?;
    let (response, descriptors): (Response, _) = wire::receive(&connection)?;
    let is_understood = response.version == VERSION && response.sockets.len() == descriptors.len();
    let mismatch = || "its response does not match this version of the protocol".to_owned();
    let refusal = response.refused;
    if let Some(why) = refusal.or_else(|| (!is_understood).then(mismatch)) {
        return Ok(Err(TakeoverError::Refused {
            state_dir: state_dir.to_owned(),
            pid: response.pid,
            why,
        }));
    }
    let sockets = descriptors.into_iter().zip(response.sockets);
    let sockets: Result<Vec<_>, _> = sockets
        .map(|(descriptor, passed)| {
            let owner = if passed.activated {
                SocketOwner::ServiceManager
            } else {
                SocketOwner::Daemon
            };
            Socket::handed_over(descriptor, owner)
        })
        .collect();
    Ok(sockets.map_err(TakeoverError::Socket).map(|sockets| {
        Takeover::Offered(Offer {
            connection,
            state_dir: state_dir.to_owned(),
            // Bounded, because it comes from another process and is added to an `Instant`.
            drain: Duration::from_secs(response.drain_sec.min(86_400)),
            pid: response.pid,
            sockets,
        })
    }))
}

fn wait_readable(socket: &OwnedFd, until: Instant) -> io::Result<()> {
    let remaining = until.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(remaining).map_err(io::Error::other)?;
    let mut sockets = [PollFd::new(socket, PollFlags::IN)];
    if poll(&mut sockets, Some(&timeout))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no response"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{bind, listen};

    use super::super::TakeoverListener;
    use super::*;
    use crate::listen::sockets::SocketKind;

    const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

    fn socket() -> Socket {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        Socket::handed_over(listener.into(), SocketOwner::Daemon).expect("usable")
    }

    #[test]
    fn without_a_running_daemon_the_lock_is_returned() {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert!(matches!(request(dir.path()), Ok(Takeover::NotRunning(_))));
    }

    #[test]
    fn an_unresponsive_daemon_is_reported_with_its_pid() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _lock = StateLock::take(dir.path()).expect("free");
        let own_pid = format!("pid {}", std::process::id());
        let no_response = |dir: &Path| {
            let error = request_within(dir, SHORT_TIMEOUT).expect_err("no response");
            assert!(
                matches!(error, TakeoverError::NoResponse { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(&own_pid), "{error}");
        };
        // Without a socket, and with a socket that is never accepted on.
        no_response(dir.path());
        let socket_path = SocketPath::new(dir.path()).expect("socket path");
        let unresponsive = wire::socket().expect("a socket");
        bind(&unresponsive, &socket_path.address).expect("bound");
        listen(&unresponsive, 8).expect("listens");
        no_response(dir.path());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sockets_are_passed_and_then_the_lock() {
        let parent = tempfile::tempdir().expect("temporary directory");
        // Longer than a socket address can be.
        let dir = parent.path().join("d".repeat(120));
        let lock = StateLock::take(&dir).expect("free");
        let passed_socket = socket();
        let listener =
            TakeoverListener::bind(&dir, std::slice::from_ref(&passed_socket), Duration::ZERO)
                .expect("listener");
        let requesting = {
            let dir = dir.clone();
            tokio::task::spawn_blocking(move || request(&dir))
        };
        let handing_over = tokio::spawn(async move {
            let successor = listener.handed_over().await;
            drop(listener);
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(lock);
            successor
        });
        let Ok(Takeover::Offered(offer)) = requesting.await.expect("outcome") else {
            panic!("an offer");
        };
        assert!(!handing_over.is_finished(), "waits for the confirmation");
        let [SocketKind::Tcp(_, address)] = [&offer.sockets[0].kind] else {
            panic!("{:?}", offer.sockets);
        };
        assert_eq!(Some(*address), passed_socket.tcp_address());
        let accepting = tokio::task::spawn_blocking(move || offer.accept().map(drop));
        accepting.await.expect("outcome").expect("the lock");
        let successor = handing_over.await.expect("ended");
        assert_eq!(successor.pid, Some(std::process::id()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cancelled_takeover_has_no_effect() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _lock = StateLock::take(dir.path()).expect("free");
        let listener =
            TakeoverListener::bind(dir.path(), &[socket()], Duration::ZERO).expect("listener");
        let handing_over = tokio::spawn(async move { listener.handed_over().await });
        for _ in 0..2 {
            let path = dir.path().to_owned();
            let outcome = tokio::task::spawn_blocking(move || request(&path)).await;
            assert!(
                matches!(outcome, Ok(Ok(Takeover::Offered(_)))),
                "{outcome:?}"
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!handing_over.is_finished());
        handing_over.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn another_protocol_version_is_refused_with_a_reason() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _lock = StateLock::take(dir.path()).expect("free");
        let listener =
            TakeoverListener::bind(dir.path(), &[socket()], Duration::ZERO).expect("listener");
        let handing_over = tokio::spawn(async move { listener.handed_over().await });
        let socket_path = SocketPath::new(dir.path()).expect("socket path");
        let connection = wire::socket().expect("a socket");
        connect(&connection, &socket_path.address).expect("connected");
        wire::send(&connection, &Request { version: 99 }, &[]).expect("sent");
        let connection = tokio::task::spawn_blocking(move || {
            wait_readable(&connection, Instant::now() + RESPONSE_TIMEOUT).expect("an answer");
            connection
        });
        let connection = connection.await.expect("waited");
        let (response, descriptors): (Response, _) = wire::receive(&connection).expect("an answer");
        assert!(descriptors.is_empty());
        let why = response.refused.expect("refused");
        assert!(why.contains("99"), "{why}");
        handing_over.abort();
    }
}
