//! Adopts a box that an earlier daemon of this instance created.
//!
//! Connects to the recovery socket of the box, reads the record and the kept programs from init, and rebuilds
//! the [`LocalBox`] from them. The content of the sessions' record is opaque here.

pub(crate) mod framed;
pub(crate) mod kept_program;
pub(crate) mod record;
pub(crate) mod recovery_socket;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::with_causes;
use boxwood_backend::{AdoptError, Adopted, BoxHandle, KeptProcess};
use boxwood_init::{Channel, FromInit};
use boxwood_sys::{peer, procfs};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::watch;

use crate::adopt::kept_program::{KeepGuard, KeptProgram};
use crate::adopt::record::BoxRecord;
use crate::cgroup::Group;
use crate::host::LocalHost;
use crate::ids::BoxIds;
use crate::mounts::live::BoxNamespaces;
use crate::network::NetError;
use crate::network::outbound::OutboundLease;
use crate::process;
use crate::process::streams::{GroupGuard, Pipes};
use crate::sandbox::LocalBox;
use crate::sandbox::link::{Link, PendingProgram, Spawned};
use crate::sandbox::resources::{BackendState, BoxResources};
use crate::start::StartedInit;
use crate::start::bootstrap::InitConnection;

/// Deadline for init's report. The host may be busy adopting many boxes at once.
const DEADLINE: Duration = Duration::from_secs(20);
/// A report of more kept programs is refused as invalid.
const MAX_KEPT: usize = 100_000;

/// A box whose init has replied. Dropping it leaves the box unchanged, so another daemon can adopt it.
pub struct Reconnected {
    handle: BoxHandle,
    /// The pid of init in the daemon's PID namespace.
    pub pid: i32,
    pidfd: OwnedFd,
    link: Arc<Link>,
    state: InitState,
}

/// For `map_err`: names the step of an adoption that failed.
pub fn step(step: &str) -> impl FnOnce(io::Error) -> AdoptError {
    let step = step.to_owned();
    move |source| AdoptError::Step { step, source }
}

impl LocalHost {
    /// Connects to a box's recovery socket and reads everything that init kept. The box is not changed.
    pub async fn reconnect(&self, handle: &BoxHandle) -> Result<Reconnected, AdoptError> {
        let init = connect(handle)?;
        let link = Link::new(init.channel).map_err(step("open the channel to init"))?;
        let state = tokio::time::timeout(DEADLINE, receive_state(&link)).await;
        let state =
            state.map_err(|_| step("receive init's state")(io::ErrorKind::TimedOut.into()))??;
        let record = &state.record;
        if (&record.backend, &record.name) != (&handle.backend, &handle.name) {
            let why = format!("init reports box `{}` of {}", record.name, record.backend);
            return Err(step("check the identity of the box")(io::Error::other(why)));
        }
        Ok(Reconnected {
            handle: handle.clone(),
            pid: init.pid,
            pidfd: init.pidfd,
            link,
            state,
        })
    }
}

/// Connects to the recovery socket and checks that the peer is the init of a box.
fn connect(handle: &BoxHandle) -> Result<InitConnection, AdoptError> {
    let socket =
        recovery_socket::connect_to(&handle.socket).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AdoptError::Gone,
            _ => step("connect to the recovery socket")(error),
        })?;
    let (pid, pidfd) =
        peer_of(&socket).map_err(step("read the peer credentials of the recovery socket"))?;
    if !procfs::is_first_of_namespace(pid).unwrap_or(false) {
        let why = "the listener is not the first process of a PID namespace";
        return Err(step("check the peer of the recovery socket")(
            io::Error::other(why),
        ));
    }
    Ok(InitConnection {
        channel: Channel::from(socket),
        pid,
        pidfd,
    })
}

/// Pid and pidfd of the process that listens at the other end.
pub(crate) fn peer_of(socket: &OwnedFd) -> io::Result<(i32, OwnedFd)> {
    let pid = peer::pid(socket.as_fd())?;
    let pidfd = peer::pidfd(socket.as_fd()).or_else(|_| {
        // A kernel without `SO_PEERPIDFD`. The pid cannot be reused meanwhile: init is connected.
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok::<_, io::Error>(pidfd_open(pid, PidfdFlags::empty())?)
    });
    Ok((pid, pidfd?))
}

struct InitState {
    record: BoxRecord,
    sessions: Vec<u8>,
    fds: Vec<Option<OwnedFd>>,
    programs: Vec<KeptProgram>,
}

async fn receive_state(link: &Link) -> Result<InitState, AdoptError> {
    let receive = async || {
        link.receive().await.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => AdoptError::Gone,
            _ => step("receive init's state")(error),
        })
    };
    let unexpected = || step("receive init's state")(io::Error::other("unexpected message"));
    let (
        FromInit::Hello {
            record, retained, ..
        },
        fds,
    ) = receive().await?
    else {
        return Err(unexpected());
    };
    let record = record.ok_or(AdoptError::Unfinished)?;
    let invalid = step("parse the record of the box");
    let (record, sessions) = framed::unpack::<BoxRecord>(&record).map_err(invalid)?;
    if retained > MAX_KEPT {
        return Err(unexpected());
    }
    let mut programs = Vec::with_capacity(retained);
    // Init sends events of these programs only after the last `Retained` message.
    for _ in 0..retained {
        let (
            FromInit::Retained {
                id,
                note,
                places: indexes,
                ended,
            },
            fds,
        ) = receive().await?
        else {
            return Err(unexpected());
        };
        let invalid = step("parse the note of a kept program");
        programs.push(KeptProgram::new(id, &note, &indexes, fds, ended).map_err(invalid)?);
    }
    Ok(InitState {
        record,
        sessions: sessions.to_vec(),
        fds: fds.into_iter().map(Some).collect(),
        programs,
    })
}

impl Reconnected {
    /// The value of [`BackendState::record`] when the box was recorded.
    pub fn backend_state(&self) -> &serde_json::Value {
        &self.state.record.backend_state
    }

    /// Makes the box this daemon's. On error the box is unchanged and can be adopted again. Needs a Tokio
    /// runtime.
    pub async fn adopt(
        self,
        host: &Arc<LocalHost>,
        backend_state: Option<Box<dyn BackendState>>,
    ) -> Result<Adopted, AdoptError> {
        let (link, pid, record) = (self.link, self.pid, self.state.record);
        let mut fds = self.state.fds;
        let ids = claim_ids(host, &record, pid)?;
        let init_uid = ids.init_uid;
        let mut resources = BoxResources::new(record.name.clone(), pid, self.pidfd, ids)
            .map_err(step("watch the pidfd of init"))?;
        // Until the adoption is complete, an error must not stop the box.
        resources.set_detached(true);
        link.set_muted(true);
        if let Some(state) = backend_state {
            resources = resources.with_backend_state(state);
        }
        if let Some(group) = record.group {
            let group = Group::reopen(&host.cgroups, group, &record.name, pid, init_uid);
            resources.group = Some(group.map_err(step("open the cgroups of the box"))?);
        }
        if let Some(namespaces) = open_namespaces(&resources, &record, &mut fds) {
            resources.set_namespaces(namespaces);
        }
        if let Some(index) = record.image {
            let directory = fds.get_mut(index).and_then(Option::take);
            let missing = || step("lock the image of the box")(io::ErrorKind::NotFound.into());
            resources.keep_image_directory(directory.ok_or_else(missing)?);
        }
        resources.set_handle(self.handle);
        let resources = Arc::new(resources);
        let mut processes = Vec::with_capacity(self.state.programs.len());
        for program in self.state.programs {
            let process = resume(program, &link, &resources);
            processes.push(process.map_err(step("adopt a kept program"))?);
        }
        // Last: a claimed network is released if it is dropped.
        if let Some(outbound) = claim_outbound(host, &record).await? {
            resources.set_outbound(outbound);
        }
        resources.set_detached(false);
        if !resources.is_alive() {
            drop(processes);
            let cleared = resources.clear().await;
            return Err(cleared
                .err()
                .map_or(AdoptError::Gone, step("clean up the dead box")));
        }
        host.inherited.adopt(&record.name);
        link.set_muted(false);
        let init = StartedInit {
            link,
            landlock: !record.writable_paths.is_empty(),
            writable_paths: record.writable_paths,
        };
        Ok(Adopted {
            sandbox: Arc::new(LocalBox::new(resources, record.label, init, host)),
            record: self.state.sessions,
            processes,
        })
    }
}

fn claim_ids(host: &LocalHost, record: &BoxRecord, pid: i32) -> Result<BoxIds, AdoptError> {
    let ids = host
        .mapping
        .claim(&record.ids)
        .map_err(step("claim the uids of the box"))?;
    let are_same = ids
        .are_those_of(pid)
        .map_err(step("read the uid map of the box"))?;
    if are_same {
        return Ok(ids);
    }
    let why = "the uid map of init differs from the record";
    Err(step("claim the uids of the box")(io::Error::other(why)))
}

/// Opens the namespaces from `/proc` if permitted, because descriptors kept by init cannot be verified.
/// Falls back to those descriptors.
fn open_namespaces(
    resources: &BoxResources,
    record: &BoxRecord,
    fds: &mut [Option<OwnedFd>],
) -> Option<BoxNamespaces> {
    let indexes = record.namespaces?;
    let opened =
        BoxNamespaces::open(resources.init).or_else(|_| BoxNamespaces::from_kept(indexes, fds));
    opened
        .inspect_err(|error| {
            tracing::warn!(%error, name = resources.name, "failed to open the namespaces of an adopted box; mounts cannot be added");
        })
        .ok()
}

async fn claim_outbound(
    host: &Arc<LocalHost>,
    record: &BoxRecord,
) -> Result<Option<OutboundLease>, AdoptError> {
    let Some(outbound) = record.outbound.clone() else {
        return Ok(None);
    };
    let (worker, name) = (Arc::clone(host), record.name.clone());
    let claim = move || OutboundLease::claim(&worker, &name, &outbound);
    let failed = step("claim the network of the box");
    match tokio::task::spawn_blocking(claim).await {
        Ok(Ok(outbound)) => Ok(Some(outbound)),
        // The box keeps running without a network.
        Ok(Err(error @ NetError::PastaGone)) => {
            tracing::warn!(%error, name = record.name, "an adopted box lost its network");
            Ok(None)
        }
        Ok(Err(error)) => Err(failed(io::Error::other(with_causes(&error)))),
        Err(error) => Err(failed(io::Error::other(error))),
    }
}

/// Rebuilds the process handle of a kept program.
fn resume(
    mut program: KeptProgram,
    link: &Arc<Link>,
    resources: &Arc<BoxResources>,
) -> io::Result<KeptProcess> {
    let box_group = resources.group.as_ref();
    let group_name = program.note.group.clone();
    let group = group_name.and_then(|name| box_group?.claim(&name));
    let group = GroupGuard::new(group, Arc::clone(resources));
    let before = program.note.before;
    let (exit_sender, exit) = watch::channel(None);
    if let Some(ended) = program.ended.take() {
        let after = box_group.map(Group::counters).unwrap_or_default();
        exit_sender.send_replace(Some(process::exit(ended, before, after)));
    } else {
        let pending = PendingProgram {
            spawned: None,
            exit: exit_sender,
            before,
            group: group.share(),
        };
        link.pending().insert(program.id, pending);
    }
    let indexes = program.note.places;
    let files = program.take_files()?;
    let terminal = program.take(indexes.terminal);
    let pipes = terminal.is_none().then(|| Pipes {
        stdin: program.take(indexes.stdin),
        stdout: program.take(indexes.stdout),
        stderr: program.take(indexes.stderr),
    });
    let spawned = Spawned {
        id: program.id,
        link: Arc::clone(link),
        exit,
        group,
        terminal,
        kept_streams: Some((indexes, KeepGuard::new(program.id, link))),
    };
    let kept_streams = spawned.kept_streams.as_ref();
    let streams = pipes
        .map(|pipes| pipes.register(kept_streams))
        .transpose()?;
    Ok(KeptProcess {
        note: program.caller_note,
        files,
        process: spawned.into_process(streams)?,
    })
}
