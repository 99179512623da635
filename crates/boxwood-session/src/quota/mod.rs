//! How much a box may write to directories of the host, before, while and after its commands run.
//!
//! Comes in: sessions, and commands that begin and end in them. Goes out: refusals, and programs that are
//! ended with the reason `disk_quota`. Never here: private areas, which the kernel bounds.
//!
//! Nothing is walked twice for a command. A directory's use is known from the last measure and from what
//! its file system has lost since ([`rule`]), which one question to the kernel tells ([`watcher`]). Only
//! when that could be too much is everything looked through ([`walk`]), while the box stands still
//! ([`inspection`]).

mod inspection;
mod place;
mod restless;
mod rule;
mod stops;
mod system;
mod walk;
mod watcher;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use boxwood_api::{MountMode, Reason};
use boxwood_policy::{AdmittedMount, OpenedPath};
use rustix::fs::fstat;
use tokio::runtime::Handle;

use crate::SessionError;
use crate::activity::lock;
use crate::session::{ExecEnd, Session};
use place::{NEVER, Place};
use rule::Doubt;
pub(crate) use stops::{Before, Stops};
use system::System;

const MIB: u64 = 1024 * 1024;

/// The longest that a command, or its result, waits for a measure.
const LONGEST_CHECK: Duration = Duration::from_secs(3);
/// Before there was any.
const FIRST_CHECK: Duration = Duration::from_secs(30);

/// Who adds to a box's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Whoever asks the daemon: the quota holds.
    Client,
    /// The daemon, which keeps what a command said and bounds that itself.
    Daemon,
}

/// Every file system of the host that boxes write to.
pub(crate) struct Quotas {
    min_free: Option<u64>,
    /// Nobody here keeps one that is not used any more.
    systems: Mutex<HashMap<u64, Weak<System>>>,
}

/// What bounds the workspace of one session; empty where the kernel does, or nothing.
#[derive(Default)]
pub(crate) struct Bounds(OnceLock<Bound>);

struct Bound {
    system: Arc<System>,
    place: Arc<Place>,
    limit: u64,
    /// For whoever is refused.
    shown: String,
}

impl Quotas {
    pub(crate) fn new(min_free: Option<u64>) -> Self {
        Self {
            min_free,
            systems: Mutex::default(),
        }
    }

    /// From now on what the session's box writes to the host is watched, until the session ends.
    pub(crate) fn watch(&self, session: &Arc<Session>) -> io::Result<()> {
        let quota_mb = session.spec.limits().workspace_quota_mb;
        let limit = (quota_mb > 0).then(|| quota_mb.saturating_mul(MIB));
        if let Some(workspace) = session.spec.workspace() {
            let joined = self.watch_mount(session, workspace, limit)?;
            if let (Some((system, place)), Some(limit)) = (joined, limit) {
                let shown = workspace.source().real_path.display().to_string();
                // Nobody sets it twice.
                let _ = session.bounds.0.set(Bound {
                    system,
                    place,
                    limit,
                    shown,
                });
            }
        }
        for mount in session.spec.extra_mounts() {
            self.watch_mount(session, mount, None)?;
        }
        Ok(())
    }

    fn watch_mount(
        &self,
        session: &Arc<Session>,
        mount: &AdmittedMount,
        limit: Option<u64>,
    ) -> io::Result<Option<(Arc<System>, Arc<Place>)>> {
        let source = mount.source();
        if mount.mode() != MountMode::Rw || !source.is_dir {
            return Ok(None);
        }
        let facts = fstat(source.fd())?;
        let system = self.system(facts.st_dev, source)?;
        let place = Place::new(Arc::clone(&source.handle), facts.st_dev, facts.st_ino);
        let (place, unwatched) = system.join(session, place, limit);
        if unwatched {
            watcher::start(Arc::clone(&system), Handle::current())?;
        }
        Ok(Some((system, place)))
    }

    fn system(&self, device: u64, source: &OpenedPath) -> io::Result<Arc<System>> {
        let mut systems = lock(&self.systems);
        if let Some(known) = systems.get(&device).and_then(Weak::upgrade) {
            return Ok(known);
        }
        systems.retain(|_, known| known.strong_count() > 0);
        let system = Arc::new(System::new(&source.handle, self.min_free)?);
        systems.insert(device, Arc::downgrade(&system));
        Ok(system)
    }
}

/// Refuses a command in a workspace that holds too much already.
pub(crate) async fn before(session: &Arc<Session>) -> Result<(), SessionError> {
    check(session, "before execution", Doubt::Usual).await
}

/// Refuses to add to such a workspace. Who writes counts and never the path, which a box can lead anywhere.
/// What the daemon keeps of a command's output is wanted most when the command was stopped for what it wrote.
/// A box that leads that into its workspace gains one output: with too much in there no further command
/// begins.
pub(crate) async fn before_write(
    session: &Arc<Session>,
    writer: Writer,
) -> Result<(), SessionError> {
    match writer {
        Writer::Client => before(session).await,
        Writer::Daemon => Ok(()),
    }
}

/// What to say of a command that left its workspace with too much. If it failed and nobody knows why,
/// that may be the reason, and is told so.
pub(crate) async fn after(session: &Arc<Session>, end: &mut ExecEnd) -> Option<SessionError> {
    let unexplained = end.reason.is_none() && end.exit_code != Some(0);
    let doubt = if unexplained {
        Doubt::Reason
    } else {
        Doubt::Usual
    };
    let over = check(session, "after execution", doubt).await.err()?;
    if unexplained {
        end.reason = Some(Reason::DiskQuota);
    }
    Some(over)
}

async fn check(
    session: &Arc<Session>,
    phase: &'static str,
    doubt: Doubt,
) -> Result<(), SessionError> {
    let Some(bound) = session.bounds.0.get() else {
        return Ok(());
    };
    let unmeasured = |why: String| SessionError::Unmeasured {
        session: session.id.clone(),
        host_path: bound.shown.clone(),
        why,
    };
    let room = bound.system.room().await;
    let room = room.map_err(|error| unmeasured(error.to_string()))?;
    {
        let mut account = lock(&bound.place.account);
        account.saw(room.free);
        if !account.is_unsure(bound.limit, doubt, Instant::now()) {
            return Ok(());
        }
    }
    let members = bound.system.members_at(&bound.place);
    let sessions: Vec<_> = members.into_iter().map(|member| member.session).collect();
    let known = lock(&bound.place.account).measured();
    let longest = if known.is_some() {
        LONGEST_CHECK
    } else {
        FIRST_CHECK
    };
    let measuring = bound.place.measure(&sessions, NEVER);
    let Ok(measured) = tokio::time::timeout(longest, measuring).await else {
        // Those who were within their quota go on under the eyes of the watcher.
        return match known {
            Some(used) if used <= bound.limit => Ok(()),
            Some(_) | None => Err(unmeasured("that takes too long".to_owned())),
        };
    };
    let used = measured
        .map_err(|error| unmeasured(error.to_string()))?
        .used;
    if used <= bound.limit {
        return Ok(());
    }
    Err(SessionError::OverQuota {
        session: session.id.clone(),
        phase,
        used,
        limit: bound.limit,
        host_path: bound.shown.clone(),
    })
}
