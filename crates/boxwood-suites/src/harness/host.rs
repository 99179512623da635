//! The mechanisms that the tests of a backend expect on this host. Independent of the backend, because its report is
//! what the suite checks.

use boxwood_api::Mechanism;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    Root,
    /// An ordinary user. Without subordinate uids, a box has only the user's own uid.
    Rootless {
        subuids: bool,
    },
}

/// A mechanism that this host does not have, and why. Listed with the tests of the backend: one that is missing without
/// being listed is a failure.
#[derive(Clone, Copy, Debug)]
pub struct MissingMechanism {
    pub mechanism: Mechanism,
    pub why: &'static str,
}

/// A feature that a backend may lack. None of them is part of the isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// File calls, done inside the box.
    Files,
    /// Mounts that join a running box.
    LiveMounts,
    /// Programs on a terminal of their own.
    Terminal,
    /// Root file systems other than the default one.
    Images,
    /// Directories and files of the host in a box.
    HostMounts,
    /// Files of a mount belong to the box's user inside, and keep their owner on the host.
    Owners,
    /// The box runs on the host's kernel: the host sees its processes, and the cases attack the isolation of that
    /// kernel.
    HostKernel,
    /// Boxes outlive the daemon, and the next one takes them over.
    Adoption,
}

impl Feature {
    pub const ALL: [Self; 8] = [
        Self::Files,
        Self::LiveMounts,
        Self::Terminal,
        Self::Images,
        Self::HostMounts,
        Self::Owners,
        Self::HostKernel,
        Self::Adoption,
    ];

    /// The name in the output of the tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "file calls",
            Self::LiveMounts => "mounts into a running box",
            Self::Terminal => "terminals",
            Self::Images => "images",
            Self::HostMounts => "directories of the host",
            Self::Owners => "owners translated on the way into a box",
            Self::HostKernel => "the host's own kernel",
            Self::Adoption => "boxes that outlive the daemon",
        }
    }
}

/// What a backend does not offer, and why. Cases that need it are reported as ignored.
#[derive(Clone, Copy, Debug)]
pub struct MissingFeature {
    pub feature: Feature,
    pub why: &'static str,
}

/// What the default root is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootFrom {
    /// The host's own system, read-only, with areas that commands may install into on top.
    TheHost,
    /// An image, whose files belong to root inside: only root can install into it.
    AnImage,
}

/// Where an image of this backend comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagesFrom {
    /// A directory of the host is used as the image.
    Directories,
    /// The backend stores images by name; a directory is imported first.
    Import,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact about the host, and none depends on another"
)]
pub struct Host {
    pub privilege: Privilege,
    pub missing_mechanisms: Vec<MissingMechanism>,
    pub missing_features: Vec<MissingFeature>,
    /// Whether `network: on` is expected to work.
    pub network: bool,
    /// Whether the box has cgroups that count memory and processes, so that an exit can name the limit that was reached.
    /// Without them a limit may still be enforced by other means.
    pub counters: bool,
    /// Whether commands can be root inside (and there only).
    pub root_inside: bool,
    /// Whether a writable root has no size limit of its own. `DiskQuota` is then missing in boxes with a writable root,
    /// and in force in boxes with a read-only one.
    pub unbounded_writable_root: bool,
    /// Whether what the kernel counts for each user (inotify instances, pending signals) is counted
    /// for each box alone.
    pub own_counts: bool,
    pub root: RootFrom,
    pub images: ImagesFrom,
    /// How many boxes the cases with many boxes start: some backends need a millisecond per box, some a second.
    pub crowd: usize,
}

impl Host {
    /// All mechanisms and features, but no network and no counters. The tests of a backend change what differs.
    pub fn new(privilege: Privilege) -> Self {
        Self {
            privilege,
            missing_mechanisms: Vec::new(),
            missing_features: Vec::new(),
            network: false,
            counters: false,
            root_inside: privilege != Privilege::Rootless { subuids: false },
            unbounded_writable_root: false,
            own_counts: privilege == Privilege::Root,
            root: RootFrom::TheHost,
            images: ImagesFrom::Directories,
            crowd: 50,
        }
    }

    pub fn is_root(&self) -> bool {
        self.privilege == Privilege::Root
    }

    pub fn expects(&self, mechanism: Mechanism) -> bool {
        !self
            .missing_mechanisms
            .iter()
            .any(|absence| absence.mechanism == mechanism)
    }

    pub fn expected(&self) -> Vec<Mechanism> {
        Mechanism::ALL
            .into_iter()
            .filter(|mechanism| self.expects(*mechanism))
            .collect()
    }

    /// Returns true if every writable area of a box can have a size limit.
    pub fn bounds_disks(&self) -> bool {
        self.expects(Mechanism::DiskQuota) || self.unbounded_writable_root
    }

    pub fn has_feature(&self, feature: Feature) -> bool {
        !self
            .missing_features
            .iter()
            .any(|missing| missing.feature == feature)
    }
}
