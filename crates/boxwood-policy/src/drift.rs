//! Detects whether the configuration has changed since a running box was created.
//!
//! Compares the spec of the box with the spec of a matching request. Values that neither of them
//! set explicitly came from the profile both times, so under the same profile they differ only if
//! the operator changed it, or what its image refers to.

use boxwood_api::MountMode;

use crate::{AdmittedMount, AdmittedSpec, SpecField};

impl AdmittedSpec {
    /// The first setting whose configured value has changed since this box was created, according
    /// to a matching request. `None` for a request with another profile.
    pub fn drifted_from(&self, today: &Self) -> Option<&'static str> {
        if self.profile != today.profile {
            return None;
        }
        self.moved(today).into_iter().next().map(|(name, _)| name)
    }

    /// The same box with current values for everything that was not set explicitly.
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
        // The same name may refer to another image by now, even if it was set explicitly.
        let image = if self.image_text == today.image_text {
            self.image != today.image
        } else {
            unnamed(SpecField::Image) && unnamed(SpecField::ImageText)
        };
        let backend = today.backend.as_deref().is_some_and(is_a_name);
        let checks: [(&'static str, bool, TakeOver); 11] = [
            (
                "network",
                by_profile(SpecField::Network, self.network != today.network),
                |spec, today| spec.network = today.network,
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

/// `auto` and `local` accept any backend.
fn is_a_name(backend: &str) -> bool {
    !matches!(backend, "auto" | "local")
}
