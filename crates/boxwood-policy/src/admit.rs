//! Admits requests: checks them against the profile and the rules, and fills in defaults.

use std::collections::BTreeSet;

use boxwood_api::{DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, LockableField, MountMode, SpecRequest};

use crate::mounts::path::{is_within, normalize_text};
use crate::mounts::targets::{Targets, target};
use crate::mounts::{self, own, skills};
use crate::spec::{Owner, Settings, outer_first};
use crate::{
    Admission, AdmittedExec, AdmittedMount, AdmittedSpec, Denial, Facts, Image, Joining,
    OpenedPath, Origin, PolicyRules, Profile, asked, limits,
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
        .ok_or_else(|| boxwood_api::FieldError::new("session_id", "must not be empty"))?;
    let profile = &profile_for(request, origin, rules)?;
    let mut notices = Vec::new();

    let network = limits::chosen(
        LockableField::Network,
        request.network,
        profile.network,
        profile,
        &mut notices,
    );
    let read_only_root = limits::chosen(
        LockableField::ReadOnlyRootfs,
        request.read_only_rootfs,
        profile.read_only_rootfs,
        profile,
        &mut notices,
    );
    let image_text = limits::chosen(
        LockableField::Image,
        named(request.image.as_deref()),
        profile.image.as_str(),
        profile,
        &mut notices,
    );
    let backend = backend(request, profile, &mut notices);
    let limits = limits::limits(request, profile, &rules.maxima, &mut notices)?;
    let timeout = limits::timeout(request, origin, profile, &rules.maxima, &mut notices);

    let files = Files::judge(request, origin, facts, rules, profile, &mut notices)?;
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
                asked: asked::fields(request, origin, facts),
            },
        },
        exec: AdmittedExec {
            cmd: request.cmd.clone(),
            workdir,
            workdir_named: asked::names_workdir(request),
            env: request.env.clone(),
            timeout,
            stdin: request.stdin.clone(),
            notices,
        },
    })
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

/// The backend that the request or the profile names.
fn backend(request: &SpecRequest, profile: &Profile, notices: &mut Vec<String>) -> Option<String> {
    const FREE: &str = "the daemon's choice";
    let asked = named(request.backend.as_deref());
    let default = profile.backend.as_deref();
    let usual = default.unwrap_or(FREE);
    let chosen = limits::chosen(LockableField::Backend, asked, usual, profile, notices);
    // Without a requested backend the default applies, which may be `None`.
    if asked.is_none() || profile.is_locked(LockableField::Backend) {
        default.map(str::to_owned)
    } else {
        Some(chosen.to_owned())
    }
}

/// The workspace and all other host paths in the box.
struct Files {
    workspace: Option<AdmittedMount>,
    host_path: Option<String>,
    host_path_mode: MountMode,
    mount_path: String,
    extra_mounts: Vec<AdmittedMount>,
}

impl Files {
    fn judge(
        request: &SpecRequest,
        origin: Origin,
        facts: &Facts,
        rules: &PolicyRules,
        profile: &Profile,
        notices: &mut Vec<String>,
    ) -> Result<Self, Denial> {
        let mount_path = target(
            "mount_path",
            request.mount_path.as_deref().unwrap_or(DEFAULT_MOUNT_PATH),
        )?;
        let host_path_mode = limits::chosen(
            LockableField::HostPathMode,
            request.host_path_mode,
            profile.host_path_mode,
            profile,
            notices,
        );
        own::check(origin, facts, rules)?;
        let host_path = request.host_path.as_deref().map(str::trim);
        let asked = match host_path {
            None => None,
            Some(given) => workspace_source(given, host_path_mode, origin, facts, rules)?,
        };
        let asked = asked.map(|source| AdmittedMount {
            source,
            mount_path: mount_path.clone(),
            mode: host_path_mode,
            joining: Joining::WhenMade,
            below_workspace: None,
        });
        let workspace = match (asked, own::workspace(facts, &mount_path)) {
            (Some(_), Some(_)) => {
                return Err(Denial::SameTarget {
                    field: "mount_path".to_owned(),
                    target: mount_path,
                });
            }
            (asked, own) => asked.or(own),
        };
        let extra_mounts =
            extra_mounts(request, &mount_path, origin, facts, rules, profile, notices)?;
        Ok(Self {
            workspace,
            host_path: host_path.map(str::to_owned),
            host_path_mode,
            mount_path,
            extra_mounts,
        })
    }
}

fn workspace_source(
    given: &str,
    mode: MountMode,
    origin: Origin,
    facts: &Facts,
    rules: &PolicyRules,
) -> Result<Option<OpenedPath>, Denial> {
    const FIELD: &str = "host_path";
    mounts::not_blocked(FIELD, given, facts.host_path.as_ref(), origin, rules)?;
    if mode == MountMode::None {
        return Ok(None);
    }
    let opened = facts.host_path.as_ref();
    mounts::within_roots(FIELD, given, opened, origin, rules)?;
    let opened = opened
        .filter(|opened| opened.is_dir)
        .ok_or_else(|| Denial::NotADirectory {
            field: FIELD.to_owned(),
        })?;
    same_path(FIELD, given, opened)?;
    Ok(Some(opened.clone()))
}

fn extra_mounts(
    request: &SpecRequest,
    workspace: &str,
    origin: Origin,
    facts: &Facts,
    rules: &PolicyRules,
    profile: &Profile,
    notices: &mut Vec<String>,
) -> Result<Vec<AdmittedMount>, Denial> {
    let mut targets = Targets::new(workspace);
    let mut admitted = Vec::new();
    let mut opened = facts.extra_mounts.iter();
    for (index, mount) in request.extra_mounts.iter().enumerate() {
        let field = format!("extra_mounts[{index}].host_path");
        let given = mount.host_path.trim();
        if mount.mode == MountMode::None {
            mounts::not_blocked(&field, given, None, origin, rules)?;
            continue;
        }
        let source = opened.next();
        // Check the list first: a blocked path is reported as blocked whether or not it exists.
        mounts::not_blocked(&field, given, source, origin, rules)?;
        mounts::within_roots(&field, given, source, origin, rules)?;
        let source = source.ok_or_else(|| Denial::NotFound {
            field: field.clone(),
        })?;
        same_path(&field, given, source)?;
        let mount_path = targets.take(
            &format!("extra_mounts[{index}].mount_path"),
            &mount.mount_path,
        )?;
        let mode = extra_mode(&field, mount.mode, profile, notices);
        if mode == MountMode::None {
            continue;
        }
        admitted.push(AdmittedMount {
            source: source.clone(),
            mount_path,
            mode,
            joining: match origin {
                // The platform sends its whole set with every request and installs skills while its
                // boxes run.
                Origin::LangBotPlatform => Joining::Living,
                Origin::Operator | Origin::Client | Origin::Hosting => Joining::WhenMade,
            },
            below_workspace: None,
        });
    }
    skills::admit(request, workspace, facts, &mut targets, &mut admitted)?;
    own::admit(facts, workspace, &mut targets, &mut admitted)?;
    outer_first(&mut admitted);
    Ok(admitted)
}

/// A locked `host_path_mode` limits all other mounts too. Otherwise a second mount would bypass the
/// lock.
fn extra_mode(
    field: &str,
    asked: MountMode,
    profile: &Profile,
    notices: &mut Vec<String>,
) -> MountMode {
    let locked = profile.host_path_mode;
    if !profile.is_locked(LockableField::HostPathMode) || asked <= locked {
        return asked;
    }
    notices.push(format!(
        "{field} is mounted {locked} because profile `{}` locks host_path_mode; {asked} was asked for",
        profile.name
    ));
    locked
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
    let asked = named(request.workdir.as_deref());
    let workdir = match asked {
        Some(asked) => normalize_text(asked).ok_or(Denial::WorkdirOutsideMount)?,
        None => files.mount_path.clone(),
    };
    let inside = is_within(workdir.as_ref(), files.mount_path.as_ref());
    if files.workspace.is_some() && !inside {
        return Err(Denial::WorkdirOutsideMount);
    }
    Ok(workdir)
}
