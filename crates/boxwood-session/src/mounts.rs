//! The mounts of one living session, which may grow while it lives.
//!
//! Comes in: what a request brings along. Goes out: what the box does not have yet, and, once it
//! has, the set that is there now. Never here: whether a mount is allowed. Policy said so, and said
//! which may join.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use boxwood_backend::{MountError, Sandbox};
use boxwood_policy::{
    AdmittedMount, AdmittedSpec, FileIdentity, Joining, MountRecord, RecordError, Reopen,
};

use crate::activity::lock;
use crate::record::identify;

/// Every mount that joined stays until the box goes, also below the one that took its place. A
/// session that has seen so many is treated like one that cannot take any.
const MOST_JOINED: usize = 512;

/// The descriptor in the mount, or the box that has it, keeps the number from being given to another
/// file.
type Identity = Option<FileIdentity>;

fn identity(mount: &AdmittedMount) -> Identity {
    identify(mount.source())
}

/// A mount and what it really shows.
#[derive(Clone)]
struct Known {
    mount: AdmittedMount,
    identity: Identity,
}

impl Known {
    fn new(mount: AdmittedMount) -> Self {
        Self {
            identity: identity(&mount),
            mount,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.mount.mount_path() == other.mount.mount_path()
            && self.mount.mode() == other.mount.mode()
            && self.identity == other.identity
            && self.mount.source().real_path == other.mount.source().real_path
    }

    fn is_below(&self, other: &Self) -> bool {
        let rest = self
            .mount
            .mount_path()
            .strip_prefix(other.mount.mount_path());
        rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// The joinable mounts of one request, looked at once: the look is no work to do under a lock.
pub(crate) struct Brought {
    identities: Vec<Identity>,
}

impl Brought {
    pub(crate) fn by(spec: &AdmittedSpec) -> Self {
        let joining = spec
            .extra_mounts()
            .iter()
            .filter(|mount| mount.joining() == Joining::Living);
        Self {
            identities: joining.map(identity).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    fn at_places_in(&self, living: &AdmittedSpec, spec: &AdmittedSpec) -> Vec<Known> {
        let mounts = spec.joining(living).into_iter();
        mounts
            .zip(&self.identities)
            .map(|(mount, identity)| Known {
                mount,
                identity: *identity,
            })
            .collect()
    }
}

pub(crate) struct Mounts {
    present: Mutex<Vec<Known>>,
    joined: AtomicUsize,
    /// Held by the one who adds mounts: two requests with the same new mount add it once.
    joining: tokio::sync::Mutex<()>,
}

impl Mounts {
    pub(crate) fn new(spec: &AdmittedSpec) -> Self {
        let made_with = spec.extra_mounts().iter().cloned();
        Self {
            present: Mutex::new(made_with.map(Known::new).collect()),
            joined: AtomicUsize::new(0),
            joining: tokio::sync::Mutex::default(),
        }
    }

    /// Of a box that was taken over. What a mount shows is what it showed when it was made, whatever
    /// its path leads to by now.
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

    /// What is there now, and how many have joined.
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

    pub(crate) fn has_all(
        &self,
        living: &AdmittedSpec,
        spec: &AdmittedSpec,
        brought: &Brought,
    ) -> bool {
        brought.is_empty()
            || self
                .missing(&brought.at_places_in(living, spec))
                .next()
                .is_none()
    }

    pub(crate) fn may_grow(&self) -> bool {
        self.joined.load(Ordering::Acquire) < MOST_JOINED
    }

    /// What a box made anew for this request has: everything that is there, and what is missing.
    pub(crate) fn together(
        &self,
        living: &AdmittedSpec,
        spec: &AdmittedSpec,
        brought: &Brought,
    ) -> Vec<AdmittedMount> {
        let mut all = lock(&self.present).clone();
        for new in brought.at_places_in(living, spec) {
            put(&mut all, new);
        }
        all.into_iter().map(|known| known.mount).collect()
    }

    /// Adds what is missing, outer before inner, one at a time. Those added before a failure stay.
    pub(crate) async fn join(
        &self,
        sandbox: &dyn Sandbox,
        living: &AdmittedSpec,
        spec: &AdmittedSpec,
        brought: &Brought,
    ) -> Result<(), MountError> {
        let _alone = self.joining.lock().await;
        let new: Vec<Known> = self
            .missing(&brought.at_places_in(living, spec))
            .cloned()
            .collect();
        for known in self.with_hidden(new) {
            sandbox.mount(&known.mount).await?;
            self.joined.fetch_add(1, Ordering::AcqRel);
            tracing::info!(
                session = %living.session(),
                mount_path = known.mount.mount_path(),
                "a mount has joined a running box"
            );
            put(&mut lock(&self.present), known);
        }
        Ok(())
    }

    fn missing<'a>(&self, wanted: &'a [Known]) -> impl Iterator<Item = &'a Known> + use<'a> {
        let present = lock(&self.present).clone();
        wanted
            .iter()
            .filter(move |wanted| !present.iter().any(|known| known.is_same(wanted)))
    }

    /// With the mounts that new ones would hide, which are put back on top of those.
    fn with_hidden(&self, mut new: Vec<Known>) -> Vec<Known> {
        let hidden: Vec<Known> = lock(&self.present)
            .iter()
            .filter(|known| new.iter().any(|new| known.is_below(new)))
            .filter(|known| {
                !new.iter()
                    .any(|new| new.mount.mount_path() == known.mount.mount_path())
            })
            .cloned()
            .collect();
        new.extend(hidden);
        outer_first(&mut new);
        new
    }
}

/// The latest at a place is the one that is seen there.
fn put(present: &mut Vec<Known>, new: Known) {
    present.retain(|known| known.mount.mount_path() != new.mount.mount_path());
    present.push(new);
    outer_first(present);
}

fn outer_first(mounts: &mut [Known]) {
    mounts.sort_by(|one, other| {
        let (one, other) = (one.mount.mount_path(), other.mount.mount_path());
        one.split('/').cmp(other.split('/'))
    });
}
