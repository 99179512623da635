//! Compares the spec of an existing box with the spec of a request.

use boxwood_api::MountMode;

use crate::spec::Settings;
use crate::{AdmittedMount, AdmittedSpec, SpecField};

/// Values that neither spec set explicitly came from the profile both times, so under the same
/// profile they differ only if the operator changed it, or what its image refers to.
impl AdmittedSpec {
    /// The first setting whose configured value has changed since this box was created, according
    /// to a matching request. `None` for a request with another profile.
    pub fn drifted_from(&self, current: &Self) -> Option<&'static str> {
        if self.profile() != current.profile() {
            return None;
        }
        let renewed = self.brought_up_to_date(current).settings;
        let (old, new) = (&self.settings, &renewed);
        let (limits, new_limits) = (&old.limits, &new.limits);
        let image = old.image != new.image || old.image_text != new.image_text;
        let quota = limits.workspace_quota_mb != new_limits.workspace_quota_mb;
        let changes = [
            ("network", old.network != new.network),
            ("image", image),
            ("host_path_mode", old.host_path_mode != new.host_path_mode),
            ("cpus", limits.cpus.to_bits() != new_limits.cpus.to_bits()),
            ("memory_mb", limits.memory_mb != new_limits.memory_mb),
            ("pids_limit", limits.pids != new_limits.pids),
            ("read_only_rootfs", old.read_only_root != new.read_only_root),
            ("workspace_quota_mb", quota),
            ("tmp_mb", limits.tmp_mb != new_limits.tmp_mb),
            ("user", old.user != new.user),
            ("backend", old.backend != new.backend),
        ];
        let mut changed = changes.into_iter().filter(|(_, changed)| *changed);
        changed.next().map(|(name, _)| name)
    }

    /// The same box with current values for everything that was not set explicitly.
    #[must_use]
    pub fn brought_up_to_date(&self, current: &Self) -> Self {
        let mut renewed = self.clone();
        let (spec, new) = (&mut renewed.settings, &current.settings);
        let unnamed = |field| {
            !self.explicit_fields().contains(&field) && !current.explicit_fields().contains(&field)
        };
        if unnamed(SpecField::Network) {
            spec.network = new.network;
        }
        // The same name may refer to another image by now, even if it was set explicitly.
        if spec.image_text == new.image_text
            || unnamed(SpecField::Image) && unnamed(SpecField::ImageText)
        {
            spec.image = new.image.clone();
            spec.image_text.clone_from(&new.image_text);
        }
        let mode = new.host_path_mode;
        if unnamed(SpecField::HostPathMode)
            && spec.host_path_mode != mode
            && let Some(workspace) = renewed.workspace.take()
        {
            spec.host_path_mode = mode;
            renewed.workspace =
                (mode != MountMode::None).then_some(AdmittedMount { mode, ..workspace });
        }
        if unnamed(SpecField::Cpus) {
            spec.limits.cpus = new.limits.cpus;
        }
        if unnamed(SpecField::MemoryMb) {
            spec.limits.memory_mb = new.limits.memory_mb;
        }
        if unnamed(SpecField::PidsLimit) {
            spec.limits.pids = new.limits.pids;
        }
        if unnamed(SpecField::ReadOnlyRootfs) {
            spec.read_only_root = new.read_only_root;
        }
        if unnamed(SpecField::WorkspaceQuotaMb) {
            spec.limits.workspace_quota_mb = new.limits.workspace_quota_mb;
        }
        spec.limits.tmp_mb = new.limits.tmp_mb;
        spec.user = new.user;
        // `auto` and `local` accept any backend.
        let backend = new.backend.as_deref();
        if unnamed(SpecField::Backend)
            && backend.is_some_and(|name| !matches!(name, "auto" | "local"))
        {
            spec.backend.clone_from(&new.backend);
        }
        renewed
    }
}

/// Whether a prewarmed box can serve a request.
impl AdmittedSpec {
    /// Whether the box can be prewarmed: it must not contain host paths.
    pub fn can_be_prewarmed(&self) -> bool {
        self.workspace.is_none() && self.host_path().is_none() && self.extra_mounts.is_empty()
    }

    /// Whether both specs create exactly the same box.
    pub fn creates_same_box_as(&self, other: &Self) -> bool {
        let unchanged = other.settings.clone();
        // These settings affect the session or, without a host path, nothing.
        let as_other = Settings {
            session: unchanged.session,
            host_path_mode: unchanged.host_path_mode,
            persistent: unchanged.persistent,
            owner: unchanged.owner,
            explicit_fields: unchanged.explicit_fields,
            ..self.settings.clone()
        };
        self.can_be_prewarmed() && other.can_be_prewarmed() && as_other == other.settings
    }
}
