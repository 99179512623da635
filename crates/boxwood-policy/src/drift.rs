//! Whether a living box is still what its profile means today.
//!
//! Comes in: the spec of a living box, and the spec of a request that fits it. Goes out: what has
//! changed under the box, and the spec that follows. Never here: what the request itself asks for.
//! Where that differs the two do not fit, and nobody asks for drift.
//!
//! A value that neither the maker of the box nor the request named came from the profile, both times.
//! Under one profile the two differ only when the operator changed it, or what its image leads to.

use boxwood_api::{MountMode, Network};

use crate::{AdmittedMount, AdmittedSpec, SpecField};

impl AdmittedSpec {
    /// The first setting in which the configuration has moved on since `self`, a living box, was
    /// made, going by a request that fits it. `None` for a request under another profile: that one
    /// says nothing about the configuration of this box.
    pub fn drifted_from(&self, today: &Self) -> Option<&'static str> {
        if self.profile != today.profile {
            return None;
        }
        self.moved(today).into_iter().next().map(|(name, _)| name)
    }

    /// The same box with everything its maker left to the configuration as it is today.
    #[must_use]
    pub fn brought_up_to_date(&self, today: &Self) -> Self {
        let mut renewed = self.clone();
        for (_, take_over) in self.moved(today) {
            take_over(&mut renewed, today);
        }
        renewed
    }

    fn moved(&self, today: &Self) -> Vec<(&'static str, TakeOver)> {
        let unnamed = |field| !self.asked.contains(&field) && !today.asked.contains(&field);
        let by_profile = |field: SpecField, differs: bool| differs && unnamed(field);
        let (limits, now) = (&self.limits, &today.limits);
        // The same name may lead elsewhere by now, also where somebody named it.
        let image = if self.image_text == today.image_text {
            self.image != today.image
        } else {
            unnamed(SpecField::Image) && unnamed(SpecField::ImageText)
        };
        let backend = today.backend.as_deref().is_some_and(is_a_name);
        let checks: [(&'static str, bool, TakeOver); 11] = [
            (
                "network",
                by_profile(SpecField::Network, self.network != today.network)
                    || (self.network == Network::On
                        && self.host_network_allowed != today.host_network_allowed),
                |spec, today| {
                    // Named ones are the same.
                    spec.network = today.network;
                    spec.host_network_allowed = today.host_network_allowed;
                },
            ),
            ("image", image, |spec, today| {
                spec.image = today.image.clone();
                spec.image_text.clone_from(&today.image_text);
            }),
            (
                "host_path_mode",
                by_profile(
                    SpecField::HostPathMode,
                    self.workspace.is_some() && self.host_path_mode != today.host_path_mode,
                ),
                |spec, today| {
                    spec.host_path_mode = today.host_path_mode;
                    spec.workspace = match today.host_path_mode {
                        MountMode::None => None,
                        mode => spec
                            .workspace
                            .take()
                            .map(|workspace| AdmittedMount { mode, ..workspace }),
                    };
                },
            ),
            (
                "cpus",
                by_profile(SpecField::Cpus, limits.cpus.to_bits() != now.cpus.to_bits()),
                |spec, today| spec.limits.cpus = today.limits.cpus,
            ),
            (
                "memory_mb",
                by_profile(SpecField::MemoryMb, limits.memory_mb != now.memory_mb),
                |spec, today| spec.limits.memory_mb = today.limits.memory_mb,
            ),
            (
                "pids_limit",
                by_profile(SpecField::PidsLimit, limits.pids != now.pids),
                |spec, today| spec.limits.pids = today.limits.pids,
            ),
            (
                "read_only_rootfs",
                by_profile(
                    SpecField::ReadOnlyRootfs,
                    self.read_only_root != today.read_only_root,
                ),
                |spec, today| spec.read_only_root = today.read_only_root,
            ),
            (
                "workspace_quota_mb",
                by_profile(
                    SpecField::WorkspaceQuotaMb,
                    limits.workspace_quota_mb != now.workspace_quota_mb,
                ),
                |spec, today| spec.limits.workspace_quota_mb = today.limits.workspace_quota_mb,
            ),
            ("tmp_mb", limits.tmp_mb != now.tmp_mb, |spec, today| {
                spec.limits.tmp_mb = today.limits.tmp_mb;
            }),
            ("user", self.user != today.user, |spec, today| {
                spec.user = today.user;
            }),
            (
                "backend",
                by_profile(SpecField::Backend, backend && self.backend != today.backend),
                |spec, today| spec.backend.clone_from(&today.backend),
            ),
        ];
        checks
            .into_iter()
            .filter_map(|(name, moved, take_over)| moved.then_some((name, take_over)))
            .collect()
    }
}

type TakeOver = fn(&mut AdmittedSpec, &AdmittedSpec);

/// `auto` and `local` are content with whatever runs the box.
fn is_a_name(backend: &str) -> bool {
    !matches!(backend, "auto" | "local")
}
