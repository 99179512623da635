//! The side of the daemon that comes. It waits without a runtime: boxes are made by a process that is
//! forked before there is one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use boxwood_sys::peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::connect;

use super::VERSION;
use super::wire::{self, Answer, Ask, Go, Place};
use crate::places::{PlaceError, StateLock};
use crate::sockets::{Maker, Socket, SocketError};

/// For the daemon that is there to answer. It may just be starting.
const ANSWER: Duration = Duration::from_secs(15);

/// For it to let go of its boxes and end, beyond the time that its requests may take.
const ENDING: Duration = Duration::from_secs(30);

/// Between two knocks.
const KNOCK: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("the daemon{} on `{}` does not answer a takeover", pid_words(*pid), state_dir.display())]
    Silent {
        state_dir: PathBuf,
        pid: Option<u32>,
        source: Option<io::Error>,
    },
    #[error("the daemon{} on `{}` refused the takeover: {why}", pid_words(Some(*pid)), state_dir.display())]
    Refused {
        state_dir: PathBuf,
        pid: u32,
        why: String,
    },
    #[error("whoever answers for `{}` is user {uid}, not the daemon's", state_dir.display())]
    Stranger { state_dir: PathBuf, uid: u32 },
    #[error("the daemon (pid {pid}) handed over its sockets but did not end within {waited_sec} s")]
    Hung { pid: u32, waited_sec: u64 },
    #[error("the daemon handed over what it should not have")]
    Socket(#[from] SocketError),
}

fn pid_words(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

impl TakeoverError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Silent { pid, .. } => {
                let pid = pid.map_or("its pid".to_owned(), |pid| pid.to_string());
                Some(format!(
                    "it hangs, belongs to a LangBot, or is older than takeovers; end it (`kill -9 {pid}` keeps \
                     its boxes) and start without --takeover"
                ))
            }
            Self::Hung { pid, .. } => Some(format!(
                "`kill -9 {pid}` ends it and keeps its boxes; then start a daemon again"
            )),
            Self::Refused { .. } => Some("stop it, and start without --takeover".to_owned()),
            Self::Stranger { .. } => Some("run this as the user of that daemon".to_owned()),
            Self::Place(_) | Self::Socket(_) => None,
        }
    }
}

/// What came of asking.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Nobody was there.
    Nobody(StateLock),
    /// Its sockets are here. It goes on as before until [`Offer::accept`].
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
    /// Tells the daemon to go, and waits until it is gone.
    pub(crate) fn accept(&self) -> Result<StateLock, TakeoverError> {
        wire::send(&self.connection, &Go { go: true }, &[])
            .map_err(|source| silent(&self.state_dir, Some(self.pid), Some(source)))?;
        let patience = self.drain + ENDING;
        match StateLock::wait(&self.state_dir, Instant::now() + patience) {
            Err(PlaceError::InUse { .. }) => Err(TakeoverError::Hung {
                pid: self.pid,
                waited_sec: patience.as_secs(),
            }),
            lock => Ok(lock?),
        }
    }
}

/// Asks the daemon on `state_dir` for its sockets.
pub(crate) fn ask(state_dir: &Path) -> Result<Asked, TakeoverError> {
    ask_within(state_dir, ANSWER)
}

fn ask_within(state_dir: &Path, patience: Duration) -> Result<Asked, TakeoverError> {
    let until = Instant::now() + patience;
    loop {
        let holder = match StateLock::take(state_dir) {
            Ok(lock) => return Ok(Asked::Nobody(lock)),
            Err(PlaceError::InUse { pid, .. }) => pid.and_then(|pid| pid.parse().ok()),
            Err(error) => return Err(error.into()),
        };
        // Not there yet, or not any more: it is starting, or handing over to somebody else.
        let error = match converse(state_dir, until) {
            Ok(asked) => return asked,
            Err(error) => error,
        };
        if Instant::now() >= until {
            return Err(silent(state_dir, holder, Some(error)));
        }
        std::thread::sleep(KNOCK);
    }
}

fn silent(state_dir: &Path, pid: Option<u32>, source: Option<io::Error>) -> TakeoverError {
    TakeoverError::Silent {
        state_dir: state_dir.to_owned(),
        pid,
        source,
    }
}

/// The outer error is worth another try, the inner one is not.
fn converse(state_dir: &Path, until: Instant) -> io::Result<Result<Asked, TakeoverError>> {
    let connection = wire::socket()?;
    let place = Place::new(state_dir)?;
    connect(&connection, &place.address)?;
    let uid = peer::uid(connection.as_fd())?;
    if !wire::is_trusted(uid) {
        return Ok(Err(TakeoverError::Stranger {
            state_dir: state_dir.to_owned(),
            uid,
        }));
    }
    wire::send(&connection, &Ask { version: VERSION }, &[])?;
    wait_readable(&connection, until)?;
    let (answer, descriptors): (Answer, _) = wire::receive(&connection)?;
    if let Some(why) = answer.refused {
        return Ok(Err(TakeoverError::Refused {
            state_dir: state_dir.to_owned(),
            pid: answer.pid,
            why,
        }));
    }
    if answer.version != VERSION || answer.sockets.len() != descriptors.len() {
        return Ok(Err(TakeoverError::Refused {
            state_dir: state_dir.to_owned(),
            pid: answer.pid,
            why: "its answer makes no sense to this version".to_owned(),
        }));
    }
    let sockets = descriptors.into_iter().zip(answer.sockets);
    let sockets: Result<Vec<_>, _> = sockets
        .map(|(descriptor, passed)| {
            let maker = if passed.activated {
                Maker::ServiceManager
            } else {
                Maker::Daemon
            };
            Socket::handed_over(descriptor, maker)
        })
        .collect();
    Ok(sockets.map_err(TakeoverError::Socket).map(|sockets| {
        Asked::Offered(Offer {
            connection,
            state_dir: state_dir.to_owned(),
            // A day is for ever here, and sums with it stay sums.
            drain: Duration::from_secs(answer.drain_sec.min(86_400)),
            pid: answer.pid,
            sockets,
        })
    }))
}

fn wait_readable(socket: &OwnedFd, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
    let mut sockets = [PollFd::new(socket, PollFlags::IN)];
    if poll(&mut sockets, Some(&timeout))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{bind, listen};

    use super::super::Door;
    use super::*;
    use crate::sockets::SocketKind;

    const SOON: Duration = Duration::from_millis(300);

    fn socket() -> Socket {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        Socket::handed_over(listener.into(), Maker::Daemon).expect("usable")
    }

    #[test]
    fn nobody_there_is_an_answer() {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert!(matches!(ask(dir.path()), Ok(Asked::Nobody(_))));
    }

    #[test]
    fn a_daemon_that_hangs_is_named() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _lock = StateLock::take(dir.path()).expect("free");
        let me = format!("pid {}", std::process::id());
        let silent = |dir: &Path| {
            let error = ask_within(dir, SOON).expect_err("nobody answers");
            assert!(matches!(error, TakeoverError::Silent { .. }), "{error:?}");
            assert!(error.to_string().contains(&me), "{error}");
        };
        // No door at all, and a door behind which nobody is.
        silent(dir.path());
        let place = Place::new(dir.path()).expect("a place");
        let hung = wire::socket().expect("a socket");
        bind(&hung, &place.address).expect("bound");
        listen(&hung, 8).expect("listens");
        silent(dir.path());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sockets_travel_and_the_lock_follows() {
        let parent = tempfile::tempdir().expect("temporary directory");
        // Deeper than a socket's address.
        let dir = parent.path().join("d".repeat(120));
        let lock = StateLock::take(&dir).expect("free");
        let given = socket();
        let door = Door::open(&dir, std::slice::from_ref(&given), Duration::ZERO).expect("a door");
        let asking = {
            let dir = dir.clone();
            tokio::task::spawn_blocking(move || ask(&dir))
        };
        let there = tokio::spawn(async move {
            let successor = door.handed_over().await;
            drop(door);
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(lock);
            successor
        });
        let Ok(Asked::Offered(offer)) = asking.await.expect("asked") else {
            panic!("an offer");
        };
        assert!(!there.is_finished(), "nothing happens before the last word");
        let [SocketKind::Tcp(_, address)] = [&offer.sockets[0].kind] else {
            panic!("{:?}", offer.sockets);
        };
        assert_eq!(Some(*address), given.tcp_address());
        let accepting = tokio::task::spawn_blocking(move || offer.accept().map(drop));
        accepting.await.expect("asked").expect("the lock");
        let successor = there.await.expect("ended");
        assert_eq!(successor.pid, Some(std::process::id()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_successor_that_gives_up_changes_nothing() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _lock = StateLock::take(dir.path()).expect("free");
        let door = Door::open(dir.path(), &[socket()], Duration::ZERO).expect("a door");
        let there = tokio::spawn(async move { door.handed_over().await });
        for _ in 0..2 {
            let path = dir.path().to_owned();
            let asked = tokio::task::spawn_blocking(move || ask(&path)).await;
            assert!(matches!(asked, Ok(Ok(Asked::Offered(_)))), "{asked:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!there.is_finished());
        there.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn another_version_is_refused_in_words() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _lock = StateLock::take(dir.path()).expect("free");
        let door = Door::open(dir.path(), &[socket()], Duration::ZERO).expect("a door");
        let there = tokio::spawn(async move { door.handed_over().await });
        let place = Place::new(dir.path()).expect("a place");
        let connection = wire::socket().expect("a socket");
        connect(&connection, &place.address).expect("connected");
        wire::send(&connection, &Ask { version: 99 }, &[]).expect("sent");
        let connection = tokio::task::spawn_blocking(move || {
            wait_readable(&connection, Instant::now() + ANSWER).expect("an answer");
            connection
        });
        let connection = connection.await.expect("waited");
        let (answer, descriptors): (Answer, _) = wire::receive(&connection).expect("an answer");
        assert!(descriptors.is_empty());
        let why = answer.refused.expect("refused");
        assert!(why.contains("99"), "{why}");
        there.abort();
    }
}
