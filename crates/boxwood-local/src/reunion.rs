//! Takes over a box that an earlier daemon made.
//!
//! Comes in: where its init listens. Goes out: the same [`LocalBox`] as its maker had, and every program
//! that was kept. Never here: the sessions' own part of the record, and what a backend keeps of a box
//! beside its processes.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::{AdoptError, Adopted, BoxHandle, KeptProcess, Sandbox};
use boxwood_init::{Channel, FromInit};
use boxwood_sys::peer;
use tokio::sync::watch;

use crate::cgroup::Group;
use crate::door::{self, Door};
use crate::framed;
use crate::host::LocalHost;
use crate::keeping::{Shown, Token};
use crate::link::{Link, Spawned, Waiting};
use crate::live_mount::Doors;
use crate::local_box::LocalBox;
use crate::mapping::BoxIds;
use crate::meeting::by_number;
use crate::net::NetError;
use crate::process;
use crate::record::BoxRecord;
use crate::remains::{Remains, Shell};
use crate::streams::{Held, Ours};
use crate::way_out::WayOut;

/// For init to say everything. It is not busy; its host may be, with many boxes at once.
const DEADLINE: Duration = Duration::from_secs(20);
/// A box that claims to keep more has lost its mind.
const MOST_KEPT: usize = 100_000;

/// A box that answered. Dropping it leaves the box as it was, waiting for a daemon.
pub struct Reunion {
    handle: BoxHandle,
    pid: i32,
    pidfd: OwnedFd,
    link: Arc<Link>,
    record: BoxRecord,
    sessions: Vec<u8>,
    fds: Vec<Option<OwnedFd>>,
    kept: Vec<Shown>,
}

/// A box that was taken over.
pub struct TakenOver {
    pub made: LocalBox,
    /// What was last given to `remember`.
    pub record: Vec<u8>,
    pub processes: Vec<KeptProcess>,
}

impl TakenOver {
    /// As the layers above hold it, with whatever the backend puts around its boxes.
    pub fn into_adopted(self, wrap: impl FnOnce(LocalBox) -> Arc<dyn Sandbox>) -> Adopted {
        Adopted {
            sandbox: wrap(self.made),
            record: self.record,
            processes: self.processes,
        }
    }
}

fn step(step: &str) -> impl FnOnce(io::Error) -> AdoptError {
    let step = step.to_owned();
    move |source| AdoptError::Step { step, source }
}

impl LocalHost {
    /// Calls at a box's door and hears everything that init kept. The box stays as it is.
    pub async fn reconnect(&self, handle: &BoxHandle) -> Result<Reunion, AdoptError> {
        let caller = call(handle)?;
        let link = Link::new(caller.channel).map_err(step("open its channel"))?;
        let heard = tokio::time::timeout(DEADLINE, hear_out(&link)).await;
        let Heard {
            record,
            sessions,
            fds,
            kept,
        } = heard.map_err(|_| step("hear from init")(io::ErrorKind::TimedOut.into()))??;
        if (&record.backend, &record.name) != (&handle.backend, &handle.name) {
            let why = format!("it says that it is `{}` of {}", record.name, record.backend);
            return Err(step("know the box")(io::Error::other(why)));
        }
        Ok(Reunion {
            handle: handle.clone(),
            pid: caller.pid,
            pidfd: caller.pidfd,
            link,
            record,
            sessions,
            fds,
            kept,
        })
    }
}

struct Caller {
    channel: Channel,
    pid: i32,
    pidfd: OwnedFd,
}

/// Connects to the first process of a box, or to nobody.
fn call(handle: &BoxHandle) -> Result<Caller, AdoptError> {
    let socket = door::knock(&handle.socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AdoptError::Gone,
        _ => step("call at its door")(error),
    })?;
    let (pid, pidfd) = listener(&socket).map_err(step("see who listens"))?;
    if !is_first_process(pid).unwrap_or(false) {
        let why = "whoever listens is not the first process of a box";
        return Err(step("know its init")(io::Error::other(why)));
    }
    Ok(Caller {
        channel: Channel::from(socket),
        pid,
        pidfd,
    })
}

/// Whoever listens at the other end, pinned.
pub(crate) fn listener(socket: &OwnedFd) -> io::Result<(i32, OwnedFd)> {
    let pid = peer::pid(socket.as_fd())?;
    let pidfd = match peer::pidfd(socket.as_fd()) {
        Ok(pidfd) => pidfd,
        Err(_) => by_number(pid)?,
    };
    Ok((pid, pidfd))
}

/// Whether a process is number one of a process namespace below ours.
pub(crate) fn is_first_process(pid: i32) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers: Vec<&str> = own.map_or(Vec::new(), |own| own.split_whitespace().collect());
    Ok(numbers.len() > 1 && numbers.last() == Some(&"1"))
}

struct Heard {
    record: BoxRecord,
    sessions: Vec<u8>,
    fds: Vec<Option<OwnedFd>>,
    kept: Vec<Shown>,
}

async fn hear_out(link: &Link) -> Result<Heard, AdoptError> {
    let receive = async || {
        link.receive().await.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => AdoptError::Gone,
            _ => step("hear from init")(error),
        })
    };
    let confused = || step("hear from init")(io::Error::other("an unexpected answer"));
    let (FromInit::Hello { record, kept, .. }, fds) = receive().await? else {
        return Err(confused());
    };
    let record = record.ok_or(AdoptError::Unfinished)?;
    let unread = step("read what was written down of it");
    let (record, sessions) = framed::unpack::<BoxRecord>(&record).map_err(unread)?;
    if kept > MOST_KEPT {
        return Err(confused());
    }
    let mut shown = Vec::with_capacity(kept);
    // What happens to programs from here on is told after the last of these.
    for _ in 0..kept {
        let (
            FromInit::Kept {
                id,
                note,
                places,
                ended,
            },
            fds,
        ) = receive().await?
        else {
            return Err(confused());
        };
        let unread = step("read what was written down of a program");
        shown.push(Shown::new(id, &note, &places, fds, ended).map_err(unread)?);
    }
    Ok(Heard {
        record,
        sessions: sessions.to_vec(),
        fds: fds.into_iter().map(Some).collect(),
        kept: shown,
    })
}

impl Reunion {
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its first process, on this host.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What [`Shell::record`] said.
    pub fn shell(&self) -> &serde_json::Value {
        &self.record.shell
    }

    /// Makes the box this daemon's. An error leaves it waiting for another. Needs a Tokio runtime.
    pub async fn take_over(
        self,
        host: &Arc<LocalHost>,
        shell: Option<Box<dyn Shell>>,
    ) -> Result<TakenOver, AdoptError> {
        let Self {
            handle,
            pid,
            pidfd,
            link,
            record,
            sessions,
            mut fds,
            kept,
        } = self;
        let ids = claim_ids(host, &record, pid)?;
        let init_uid = ids.init_uid;
        let mut remains =
            Remains::new(record.name.clone(), pid, pidfd, ids).map_err(step("watch its init"))?;
        // Until everything is there this box is not ours to end.
        remains.let_go_until_held();
        link.set_silent(true);
        if let Some(shell) = shell {
            remains = remains.with_shell(shell);
        }
        if let Some(group) = record.group {
            let group = Group::reopen(&host.cgroups, group, &record.name, pid, init_uid);
            remains.group = Some(group.map_err(step("open its cgroups"))?);
        }
        if let Some(doors) = open_doors(&remains, &record, &mut fds) {
            remains.set_doors(doors);
        }
        if let Some(place) = record.image {
            let held = fds.get_mut(place).and_then(Option::take);
            let missing = || step("hold its image")(io::ErrorKind::NotFound.into());
            remains.hold_image_directory(held.ok_or_else(missing)?);
        }
        remains.set_door(Door::found(handle));
        let remains = Arc::new(remains);
        let mut processes = Vec::with_capacity(kept.len());
        for shown in kept {
            let process = resume(shown, &link, &remains);
            processes.push(process.map_err(step("take over a program"))?);
        }
        // Last: from here on the box is ours.
        if let Some(way_out) = claim_way_out(host, &record).await? {
            remains.set_way_out(way_out);
        }
        remains.hold();
        if !remains.is_alive() {
            drop(processes);
            let cleared = remains.clear().await;
            return Err(cleared
                .err()
                .map_or(AdoptError::Gone, step("clear it away")));
        }
        host.heritage.adopt(&record.name);
        link.set_silent(false);
        let made = LocalBox::new(remains, record.label, link, record.fence, host);
        Ok(TakenOver {
            made,
            record: sessions,
            processes,
        })
    }
}

fn claim_ids(host: &LocalHost, record: &BoxRecord, pid: i32) -> Result<BoxIds, AdoptError> {
    let ids = host
        .mapping
        .claim(&record.ids)
        .map_err(step("claim its uids"))?;
    let theirs = ids.are_those_of(pid).map_err(step("read its user map"))?;
    if theirs {
        return Ok(ids);
    }
    let why = "the kernel says that its uids are others";
    Err(step("claim its uids")(io::Error::other(why)))
}

/// Anew where the kernel lets us, so that nobody's word is needed; otherwise those that init kept.
fn open_doors(remains: &Remains, record: &BoxRecord, fds: &mut [Option<OwnedFd>]) -> Option<Doors> {
    let places = record.doors?;
    let opened = Doors::open(remains.init).or_else(|_| Doors::kept(places, fds));
    opened
        .inspect_err(|error| {
            tracing::warn!(%error, name = remains.name, "an adopted box takes no more mounts");
        })
        .ok()
}

async fn claim_way_out(
    host: &Arc<LocalHost>,
    record: &BoxRecord,
) -> Result<Option<WayOut>, AdoptError> {
    let Some(way_out) = record.way_out.clone() else {
        return Ok(None);
    };
    let (worker, name) = (Arc::clone(host), record.name.clone());
    let claim = move || WayOut::claim(&worker, &name, &way_out);
    let failed = step("claim its network");
    match tokio::task::spawn_blocking(claim).await {
        Ok(Ok(way_out)) => Ok(Some(way_out)),
        // Its programs find that the network is gone, and go on otherwise.
        Ok(Err(error @ NetError::PastaGone)) => {
            tracing::warn!(%error, name = record.name, "an adopted box has no network any more");
            Ok(None)
        }
        Ok(Err(error)) => Err(failed(io::Error::other(crate::chain(&error)))),
        Err(error) => Err(failed(io::Error::other(error))),
    }
}

/// A program that was kept, as whoever started it held it.
fn resume(mut shown: Shown, link: &Arc<Link>, remains: &Arc<Remains>) -> io::Result<KeptProcess> {
    let of = remains.group.as_ref();
    let named = shown.note.group.clone();
    let group = named.and_then(|name| of?.claim(&name));
    let group = Held::new(group, Arc::clone(remains));
    let before = shown.note.before();
    let (tell_exit, exit) = watch::channel(None);
    if let Some(ended) = shown.ended.take() {
        let after = of.map(Group::counters).unwrap_or_default();
        tell_exit.send_replace(Some(process::exit(ended, before, after)));
    } else {
        let waiting = Waiting {
            spawned: None,
            exit: tell_exit,
            before,
            group: group.share(),
        };
        link.waiting().insert(shown.id, waiting);
    }
    let places = shown.note.places;
    let files = shown.take_files()?;
    let terminal = shown.take(places.terminal);
    let ours = match terminal {
        Some(_) => Ours::Terminal,
        None => Ours::Pipes {
            stdin: shown.take(places.stdin),
            stdout: shown.take(places.stdout),
            stderr: shown.take(places.stderr),
        },
    };
    let spawned = Spawned {
        id: shown.id,
        link: Arc::clone(link),
        exit,
        group,
        terminal,
        kept: Some((places, Token::new(shown.id, link))),
    };
    let ours = ours.watch(spawned.kept.as_ref())?;
    Ok(KeptProcess {
        note: shown.callers_note,
        files,
        process: spawned.into_process(ours)?,
    })
}
