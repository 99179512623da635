//! Admits requests: checks them against the profile and the rules, and fills in defaults.

use std::collections::BTreeSet;

use boxwood_api::{
    DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, FieldError, LockableField as Lock, MountMode, SpecRequest,
};

use crate::mounts::path::{is_within, normalize_text};
use crate::mounts::targets::{Targets, target};
use crate::mounts::{self, own, skills};
use crate::spec::{Owner, Settings, outer_first};
use crate::{
    Admission, AdmittedExec, AdmittedMount, AdmittedSpec, Denial, Facts, Image, Joining,
    OpenedPath, Origin, PolicyRules, Profile, explicit_fields,
};

/// Selects the system directories of the host.
pub const HOST_IMAGE: &str = "host";

/// Admits one request, or denies it. Values that the profile changed are reported in the notices.
pub fn admit(
    request: &SpecRequest,
    origin: Origin,
    facts: &Facts,
    rules: &PolicyRules,
) -> Result<Admission, Denial> {
    request.validate()?;
    let session = request
        .session_id
        .clone()
        .ok_or_else(|| FieldError::new("session_id", "must not be empty"))?;
    let profile = &profile_for(request, origin, rules)?;
    let mut decision = Decision {
        request,
        origin,
        facts,
        rules,
        profile,
        notices: Vec::new(),
    };

    let network = decision.chosen(Lock::Network, request.network, profile.network);
    let read_only_root = decision.chosen(
        Lock::ReadOnlyRootfs,
        request.read_only_rootfs,
        profile.read_only_rootfs,
    );
    let requested_image = named(request.image.as_deref());
    let image_text = decision.chosen(Lock::Image, requested_image, profile.image.as_str());
    let backend = decision.backend();
    let limits = decision.limits()?;
    let timeout = decision.timeout();
    let files = decision.files()?;
    let workdir = workdir(request, &files)?;
    let require: BTreeSet<_> = profile
        .require
        .iter()
        .chain(&request.require)
        .copied()
        .collect();

    Ok(Admission {
        spec: AdmittedSpec {
            workspace: files.workspace,
            extra_mounts: files.extra_mounts,
            settings: Settings {
                session,
                profile: profile.name.clone(),
                image: resolve_image(image_text, rules),
                image_text: image_text.to_owned(),
                network,
                limits,
                read_only_root,
                host_path: files.host_path,
                host_path_mode: files.host_path_mode,
                mount_path: files.mount_path,
                persistent: request.persistent.unwrap_or(false),
                user: profile.user,
                require: require.into_iter().collect(),
                backend,
                owner: owner(origin),
                explicit_fields: explicit_fields::collect(request, origin, facts),
            },
        },
        exec: AdmittedExec {
            cmd: request.cmd.clone(),
            workdir,
            workdir_named: explicit_fields::names_workdir(request),
            env: request.env.clone(),
            timeout,
            stdin: request.stdin.clone(),
            notices: decision.notices,
        },
    })
}

/// The inputs of one decision, and the notices for the caller.
pub(crate) struct Decision<'a> {
    pub(crate) request: &'a SpecRequest,
    pub(crate) origin: Origin,
    pub(crate) facts: &'a Facts,
    pub(crate) rules: &'a PolicyRules,
    pub(crate) profile: &'a Profile,
    pub(crate) notices: Vec<String>,
}

fn owner(origin: Origin) -> Owner {
    match origin {
        Origin::Hosting => Owner::Hosting,
        Origin::Operator | Origin::Client | Origin::LangBotPlatform => Owner::Callers,
    }
}

fn profile_for(
    request: &SpecRequest,
    origin: Origin,
    rules: &PolicyRules,
) -> Result<Profile, Denial> {
    let default = rules.profiles.default_profile();
    Ok(match (&request.profile, origin) {
        (Some(name), _) => rules.profiles.get(name.trim())?.clone(),
        (None, Origin::LangBotPlatform) => Profile::for_platform(default),
        (None, Origin::Operator | Origin::Client | Origin::Hosting) => default.clone(),
    })
}

/// A blank name counts as absent: configuration templates have it as their default.
fn named(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Only `[images]` maps names to directories. A path in a request is treated as an image name,
/// never as a path.
fn resolve_image(text: &str, rules: &PolicyRules) -> Image {
    let name = text.trim();
    if let Some(path) = rules.images.get(name) {
        return Image::Directory {
            name: name.to_owned(),
            path: path.clone(),
        };
    }
    if name.is_empty() || name == HOST_IMAGE || DEFAULT_IMAGES.contains(&name) {
        return Image::Default;
    }
    Image::Named(name.to_owned())
}

/// The workspace and all other host paths in the box.
struct Files {
    workspace: Option<AdmittedMount>,
    host_path: Option<String>,
    host_path_mode: MountMode,
    mount_path: String,
    extra_mounts: Vec<AdmittedMount>,
}

impl<'a> Decision<'a> {
    /// The backend that the request or the profile names.
    fn backend(&mut self) -> Option<String> {
        const UNSPECIFIED: &str = "the daemon's choice";
        let requested = named(self.request.backend.as_deref());
        let default = self.profile.backend.as_deref();
        let chosen = self.chosen(Lock::Backend, requested, default.unwrap_or(UNSPECIFIED));
        // Without a requested backend the default applies, which may be `None`.
        if requested.is_none() || self.profile.is_locked(Lock::Backend) {
            default.map(str::to_owned)
        } else {
            Some(chosen.to_owned())
        }
    }

    fn files(&mut self) -> Result<Files, Denial> {
        let request = self.request;
        let mount_path = request.mount_path.as_deref();
        let mount_path = target("mount_path", mount_path.unwrap_or(DEFAULT_MOUNT_PATH))?;
        let host_path_mode = self.chosen(
            Lock::HostPathMode,
            request.host_path_mode,
            self.profile.host_path_mode,
        );
        own::check(self.origin, self.facts, self.rules)?;
        let host_path = request.host_path.as_deref().map(str::trim);
        let requested_source = match host_path {
            None => None,
            Some(given) => self.workspace_source(given, host_path_mode)?,
        };
        let requested_source = requested_source
            .map(|source| AdmittedMount::new(source, mount_path.clone(), host_path_mode));
        let workspace = match (requested_source, own::workspace(self.facts, &mount_path)) {
            (Some(_), Some(_)) => {
                return Err(Denial::SameTarget {
                    field: "mount_path".to_owned(),
                    target: mount_path,
                });
            }
            (requested_source, own) => requested_source.or(own),
        };
        Ok(Files {
            workspace,
            host_path: host_path.map(str::to_owned),
            host_path_mode,
            extra_mounts: self.extra_mounts(&mount_path)?,
            mount_path,
        })
    }

    fn workspace_source(&self, given: &str, mode: MountMode) -> Result<Option<OpenedPath>, Denial> {
        const FIELD: &str = "host_path";
        let opened = self.facts.host_path.as_ref();
        mounts::not_blocked(FIELD, given, opened, self.origin, self.rules)?;
        if mode == MountMode::None {
            return Ok(None);
        }
        mounts::within_roots(FIELD, given, opened, self.origin, self.rules)?;
        let opened = opened.filter(|opened| opened.is_dir).ok_or_else(|| {
            FieldError::new(FIELD, "must point to an existing directory on the host")
        })?;
        same_path(FIELD, given, opened)?;
        Ok(Some(opened.clone()))
    }

    fn extra_mounts(&mut self, workspace: &str) -> Result<Vec<AdmittedMount>, Denial> {
        let mut targets = Targets::new(workspace);
        let mut admitted = Vec::new();
        let mut opened = self.facts.extra_mounts.iter();
        for (index, mount) in self.request.extra_mounts.iter().enumerate() {
            let field = format!("extra_mounts[{index}].host_path");
            let given = mount.host_path.trim();
            if mount.mode == MountMode::None {
                mounts::not_blocked(&field, given, None, self.origin, self.rules)?;
                continue;
            }
            let source = self.extra_source(&field, given, opened.next())?;
            let mount_path = targets.take(
                &format!("extra_mounts[{index}].mount_path"),
                &mount.mount_path,
            )?;
            let mode = self.extra_mode(&field, mount.mode);
            if mode == MountMode::None {
                continue;
            }
            let joining = match self.origin {
                // The platform sends its whole set with every request and installs skills while its
                // boxes run.
                Origin::LangBotPlatform => Joining::WhileRunning,
                Origin::Operator | Origin::Client | Origin::Hosting => Joining::AtStart,
            };
            admitted.push(AdmittedMount {
                joining,
                ..AdmittedMount::new(source.clone(), mount_path, mode)
            });
        }
        skills::admit(
            self.request,
            workspace,
            self.facts,
            &mut targets,
            &mut admitted,
        )?;
        own::admit(self.facts, workspace, &mut targets, &mut admitted)?;
        outer_first(&mut admitted);
        Ok(admitted)
    }

    fn extra_source(
        &self,
        field: &str,
        given: &str,
        opened: Option<&'a OpenedPath>,
    ) -> Result<&'a OpenedPath, Denial> {
        // Check the list first: a blocked path is reported as blocked whether or not it exists.
        mounts::not_blocked(field, given, opened, self.origin, self.rules)?;
        mounts::within_roots(field, given, opened, self.origin, self.rules)?;
        let opened = opened.ok_or_else(|| {
            FieldError::new(
                field,
                "must point to an existing file or directory on the host",
            )
        })?;
        same_path(field, given, opened)?;
        Ok(opened)
    }

    /// A locked `host_path_mode` limits all other mounts too. Otherwise a second mount would bypass
    /// the lock.
    fn extra_mode(&mut self, field: &str, requested: MountMode) -> MountMode {
        let locked = self.profile.host_path_mode;
        if !self.profile.is_locked(Lock::HostPathMode) || requested <= locked {
            return requested;
        }
        self.notices.push(format!(
            "{field} is mounted {locked} because profile `{}` locks host_path_mode; {requested} was asked for",
            self.profile.name
        ));
        locked
    }
}

/// Ensures that the opened descriptor belongs to the path of this request.
pub(crate) fn same_path(field: &str, given: &str, opened: &OpenedPath) -> Result<(), Denial> {
    if opened.given.trim() == given {
        return Ok(());
    }
    Err(Denial::ForeignFacts {
        field: field.to_owned(),
    })
}

fn workdir(request: &SpecRequest, files: &Files) -> Result<String, Denial> {
    let outside = || {
        FieldError::new(
            "workdir",
            "must stay under mount_path when host_path is provided",
        )
    };
    let workdir = match named(request.workdir.as_deref()) {
        Some(requested) => normalize_text(requested).ok_or_else(outside)?,
        None => files.mount_path.clone(),
    };
    let inside = is_within(workdir.as_ref(), files.mount_path.as_ref());
    if files.workspace.is_some() && !inside {
        return Err(outside().into());
    }
    Ok(workdir)
}
