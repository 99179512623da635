//! The mounts of one session, which can be added while it runs.
//!
//! Policy has decided which mounts are allowed and which can be added later.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_backend::{MountError, Sandbox};
use boxwood_policy::{
    AdmittedMount, AdmittedSpec, FileIdentity, Joining, MountRecord, RecordError, Reopen,
};

use crate::recovery::record::identify;
use crate::session::activity::lock;

/// A mount that was added stays until the box is removed, even if another one covers it. Beyond this
/// number the box is treated as one that cannot add mounts.
const MAX_JOINED: usize = 512;

/// A mount and the file it shows.
#[derive(Clone)]
struct Known {
    mount: AdmittedMount,
    /// The inode number is not reused, because the descriptor in the mount, or the box, holds the file.
    identity: Option<FileIdentity>,
}

impl Known {
    fn new(mount: AdmittedMount) -> Self {
        Self {
            identity: identify(mount.source()),
            mount,
        }
    }

    fn path(&self) -> &str {
        self.mount.mount_path()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.path() == other.path()
            && self.mount.mode() == other.mount.mode()
            && self.identity == other.identity
            && self.mount.source().real_path == other.mount.source().real_path
    }

    fn is_below(&self, other: &Self) -> bool {
        let suffix = self.path().strip_prefix(other.path());
        suffix.is_some_and(|suffix| suffix.starts_with('/'))
    }
}

/// A request for a session. The files of mounts that can be added are identified once, outside of any
/// lock.
pub(crate) struct SessionRequest {
    pub(crate) spec: Arc<AdmittedSpec>,
    identities: Vec<Option<FileIdentity>>,
}

impl SessionRequest {
    pub(crate) fn new(spec: &Arc<AdmittedSpec>) -> Self {
        let mounts = spec.extra_mounts().iter();
        let joining = mounts.filter(|mount| mount.joining() == Joining::WhileRunning);
        Self {
            identities: joining.map(|mount| identify(mount.source())).collect(),
            spec: Arc::clone(spec),
        }
    }

    fn mounts_in(&self, session_spec: &AdmittedSpec) -> Vec<Known> {
        let mounts = self.spec.joining(session_spec).into_iter();
        let identified = mounts.zip(self.identities.iter().copied());
        let known = identified.map(|(mount, identity)| Known { mount, identity });
        known.collect()
    }
}

pub(crate) struct Mounts {
    present: Mutex<Vec<Known>>,
    joined: AtomicUsize,
    /// Locked while mounts are added, so that two requests with the same mount add it once.
    joining: tokio::sync::Mutex<()>,
}

impl Mounts {
    pub(crate) fn new(spec: &AdmittedSpec) -> Self {
        let initial = spec.extra_mounts().iter().cloned();
        Self {
            present: Mutex::new(initial.map(Known::new).collect()),
            joined: AtomicUsize::new(0),
            joining: tokio::sync::Mutex::default(),
        }
    }

    /// The mounts of an adopted box. A mount still shows the file it showed when it was created,
    /// wherever its path leads now.
    pub(crate) fn restored(
        records: Vec<MountRecord>,
        joined: usize,
        reopen: Reopen<'_>,
    ) -> Result<Self, RecordError> {
        let known = records.into_iter().map(|record| {
            Ok(Known {
                identity: record.source().identity,
                mount: AdmittedMount::restored(record, reopen)?,
            })
        });
        Ok(Self {
            present: Mutex::new(known.collect::<Result<_, _>>()?),
            joined: AtomicUsize::new(joined),
            joining: tokio::sync::Mutex::default(),
        })
    }

    /// The current mounts, and the number of added ones.
    pub(crate) fn record(&self) -> (Vec<MountRecord>, usize) {
        let present = lock(&self.present);
        let records = present
            .iter()
            .map(|known| known.mount.record(&|_| known.identity));
        (records.collect(), self.joined.load(Ordering::Acquire))
    }

    pub(crate) fn present(&self) -> Vec<AdmittedMount> {
        let present = lock(&self.present);
        present.iter().map(|known| known.mount.clone()).collect()
    }

    pub(crate) fn has_all(&self, session_spec: &AdmittedSpec, request: &SessionRequest) -> bool {
        request.identities.is_empty() || self.missing(request.mounts_in(session_spec)).is_empty()
    }

    pub(crate) fn may_grow(&self) -> bool {
        self.joined.load(Ordering::Acquire) < MAX_JOINED
    }

    /// The mounts of a box that is recreated for this request: the current ones and the missing ones.
    pub(crate) fn merged_with(
        &self,
        session_spec: &AdmittedSpec,
        request: &SessionRequest,
    ) -> Vec<AdmittedMount> {
        let mut all = lock(&self.present).clone();
        for new in request.mounts_in(session_spec) {
            put(&mut all, new);
        }
        all.into_iter().map(|known| known.mount).collect()
    }

    /// Adds missing mounts one at a time, outer before inner. Those added before a failure stay.
    pub(crate) async fn join(
        &self,
        sandbox: &dyn Sandbox,
        session_spec: &AdmittedSpec,
        request: &SessionRequest,
    ) -> Result<(), MountError> {
        let _guard = self.joining.lock().await;
        let new = self.missing(request.mounts_in(session_spec));
        for known in self.with_hidden(new) {
            sandbox.mount(&known.mount).await?;
            self.joined.fetch_add(1, Ordering::AcqRel);
            tracing::info!(
                session = %session_spec.session(),
                mount_path = known.mount.mount_path(),
                "added a mount to a running box"
            );
            put(&mut lock(&self.present), known);
        }
        Ok(())
    }

    fn missing(&self, mut requested: Vec<Known>) -> Vec<Known> {
        let present = lock(&self.present);
        requested.retain(|requested| !present.iter().any(|known| known.is_same(requested)));
        requested
    }

    /// Includes existing mounts that new ones would hide; they are mounted again on top.
    fn with_hidden(&self, mut new: Vec<Known>) -> Vec<Known> {
        let hidden: Vec<Known> = lock(&self.present)
            .iter()
            .filter(|known| new.iter().any(|new| known.is_below(new)))
            .filter(|known| !new.iter().any(|new| new.path() == known.path()))
            .cloned()
            .collect();
        new.extend(hidden);
        outer_first(&mut new);
        new
    }
}

/// The latest mount at a path is the visible one.
fn put(present: &mut Vec<Known>, new: Known) {
    present.retain(|known| known.path() != new.path());
    present.push(new);
    outer_first(present);
}

fn outer_first(mounts: &mut [Known]) {
    mounts.sort_by(|one, other| one.path().split('/').cmp(other.path().split('/')));
}
