//! What is asked of the daemon's door for a server's boxes.

use std::path::{Path, PathBuf};

use boxwood_api::{DEFAULT_MOUNT_PATH, McpServerSpec, MountMode, Network, SessionId, SpecRequest};

use super::OwnMount;
use super::launch::CACHE;

/// What the server finds at its workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// A private one that nobody else sees.
    Private,
    /// A copy that is the server's own.
    Copy(PathBuf),
    /// A directory of the host itself; policy judges it.
    Direct(String),
}

impl Workspace {
    fn mounts(&self) -> Vec<OwnMount> {
        match self {
            Self::Copy(place) => vec![at_workspace(place, true)],
            Self::Private | Self::Direct(_) => Vec::new(),
        }
    }

    /// What an installer sees of it: the parts with what it installs for, and no other. The installer has
    /// the network, whatever the server is to have.
    pub(crate) fn to_install(&self, parts: &[String]) -> (Self, Vec<OwnMount>) {
        match self {
            _ if parts.is_empty() => (Self::Private, Vec::new()),
            Self::Copy(place) => {
                let mounts = parts.iter().map(|part| part_of(place, part)).collect();
                (Self::Private, mounts)
            }
            Self::Private | Self::Direct(_) => (self.clone(), Vec::new()),
        }
    }

    /// Where it lies on the host.
    pub(crate) fn place(&self) -> Option<&Path> {
        match self {
            Self::Private => None,
            Self::Copy(place) => Some(place),
            Self::Direct(path) => Some(Path::new(path)),
        }
    }
}

fn part_of(place: &Path, part: &str) -> OwnMount {
    if part.is_empty() {
        return at_workspace(place, true);
    }
    OwnMount {
        host_path: place.join(part),
        mount_path: format!("{DEFAULT_MOUNT_PATH}/{part}"),
        is_writable: true,
    }
}

fn at_workspace(place: &Path, is_writable: bool) -> OwnMount {
    OwnMount {
        host_path: place.to_owned(),
        mount_path: DEFAULT_MOUNT_PATH.to_owned(),
        is_writable,
    }
}

pub(crate) fn of_server(
    spec: &McpServerSpec,
    session: &SessionId,
    workspace: &Workspace,
    lasts: Lasts,
) -> SpecRequest {
    let settings = &spec.settings;
    SpecRequest {
        env: settings.env.clone(),
        network: Some(settings.network),
        cpus: settings.cpus,
        memory_mb: settings.memory_mb,
        pids_limit: settings.pids_limit,
        // Many servers write beside themselves.
        read_only_rootfs: Some(settings.read_only_rootfs.unwrap_or(false)),
        persistent: Some(lasts == Lasts::UntilRemoved),
        ..common(spec, session, workspace, MountMode::Rw)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    UntilRemoved,
    ForATest,
}

/// With the profile's size of memory, which [`installer_memory`] may raise.
pub(crate) fn of_installer(
    spec: &McpServerSpec,
    session: &SessionId,
    workspace: &Workspace,
) -> SpecRequest {
    SpecRequest {
        network: Some(Network::On),
        read_only_rootfs: Some(false),
        persistent: Some(false),
        // An installer has no business writing into somebody's directory.
        ..common(spec, session, workspace, MountMode::Ro)
    }
}

/// What was asked for the server, where that is more than the profile has. Installers need more than most
/// servers, so one that is to run with less still installs with the profile's size.
pub(crate) fn installer_memory(spec: &McpServerSpec, of_profile_mb: u64) -> Option<u64> {
    spec.settings.memory_mb.filter(|mb| *mb > of_profile_mb)
}

/// Asks whether a directory might be mounted, before it is copied.
pub(crate) fn to_judge(
    spec: &McpServerSpec,
    session: &SessionId,
    host_path: &str,
    mode: MountMode,
) -> SpecRequest {
    let direct = Workspace::Direct(host_path.to_owned());
    common(spec, session, &direct, mode)
}

pub(crate) fn mounts_of_server(workspace: &Workspace, install: Option<&Path>) -> Vec<OwnMount> {
    let mut mounts = workspace.mounts();
    mounts.extend(install.map(|place| OwnMount {
        host_path: place.to_owned(),
        mount_path: CACHE.to_owned(),
        is_writable: false,
    }));
    mounts
}

fn common(
    spec: &McpServerSpec,
    session: &SessionId,
    workspace: &Workspace,
    mode: MountMode,
) -> SpecRequest {
    let settings = &spec.settings;
    let direct = match workspace {
        Workspace::Direct(path) => Some(path.clone()),
        Workspace::Private | Workspace::Copy(_) => None,
    };
    SpecRequest {
        session_id: Some(session.clone()),
        profile: settings.profile.clone(),
        backend: settings.backend.clone(),
        image: settings.image.clone(),
        host_path_mode: direct.is_some().then_some(mode),
        host_path: direct,
        ..SpecRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(settings: &serde_json::Value) -> McpServerSpec {
        serde_json::from_value(serde_json::json!({
            "name": "time", "command": "x", "env": {"TOKEN": "secret"}, "box": settings,
        }))
        .expect("a spec")
    }

    fn session() -> SessionId {
        SessionId::new("mcp-time").expect("an id")
    }

    #[test]
    fn what_is_left_out_is_left_to_the_profile() {
        let asked = of_server(
            &spec(&serde_json::json!({})),
            &session(),
            &Workspace::Private,
            Lasts::UntilRemoved,
        );
        let expected = SpecRequest {
            session_id: Some(session()),
            network: Some(Network::On),
            read_only_rootfs: Some(false),
            persistent: Some(true),
            ..SpecRequest::default()
        };
        assert_eq!(asked, expected);
    }

    #[test]
    fn what_is_asked_for_is_asked_of_the_door() {
        let settings = serde_json::json!({
            "image": "python:3.13", "network": "off", "env": {"LANG": "C"}, "cpus": 0.5,
            "memory_mb": 256, "pids_limit": 64, "read_only_rootfs": true, "profile": "strict",
            "backend": "native",
        });
        let asked = of_server(
            &spec(&settings),
            &session(),
            &Workspace::Direct("/srv/data".to_owned()),
            Lasts::ForATest,
        );
        let shown = serde_json::to_value(&asked).expect("JSON");
        let expected = serde_json::json!({
            "session_id": "mcp-time", "image": "python:3.13", "network": "off",
            "env": {"LANG": "C"}, "cpus": 0.5, "memory_mb": 256, "pids_limit": 64,
            "read_only_rootfs": true, "profile": "strict", "backend": "native",
            "host_path": "/srv/data", "host_path_mode": "rw", "persistent": false,
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_installer_has_network_and_no_secrets_and_writes_only_to_the_cache() {
        let server = spec(&serde_json::json!({
            "network": "off", "memory_mb": 64, "env": {"A": "b"}, "read_only_rootfs": true,
        }));
        let workspace = Workspace::Direct("/srv/data".to_owned());
        let asked = of_installer(&server, &session(), &workspace);
        assert_eq!(asked.network, Some(Network::On));
        assert_eq!(asked.memory_mb, None);
        assert_eq!(installer_memory(&server, 512), None);
        assert_eq!(asked.host_path_mode, Some(MountMode::Ro));
        assert!(!format!("{asked:?}").contains("secret"));
    }

    #[test]
    fn memory_that_is_raised_is_raised_for_the_installer_too() {
        for (asked, of_profile, expected) in [
            (768, 512, Some(768)),
            (4096, 512, Some(4096)),
            (512, 512, None),
            (768, 1024, None),
        ] {
            let server = spec(&serde_json::json!({"memory_mb": asked}));
            assert_eq!(installer_memory(&server, of_profile), expected, "{asked}");
        }
    }

    #[test]
    fn an_installer_sees_the_parts_it_installs_for_and_no_other() {
        let shown = |workspace: &Workspace, parts: &[&str]| {
            let parts: Vec<_> = parts.iter().map(|&part| part.to_owned()).collect();
            let (rest, mounts) = workspace.to_install(&parts);
            let mounts: Vec<_> = mounts
                .into_iter()
                .map(|mount| (mount.host_path.display().to_string(), mount.mount_path))
                .collect();
            (rest, mounts)
        };
        let pair = |host: &str, path: &str| (host.to_owned(), path.to_owned());
        let copy = Workspace::Copy(PathBuf::from("/state/work/mcp-time"));
        let private = Workspace::Private;
        assert_eq!(shown(&copy, &[]), (private.clone(), vec![]));
        let whole = vec![pair("/state/work/mcp-time", "/workspace")];
        assert_eq!(shown(&copy, &[""]), (private.clone(), whole));
        let part = vec![pair("/state/work/mcp-time/project", "/workspace/project")];
        assert_eq!(shown(&copy, &["project"]), (private.clone(), part));
        let nested = vec![pair("/state/work/mcp-time/a/b", "/workspace/a/b")];
        assert_eq!(shown(&copy, &["a/b"]), (private.clone(), nested));
        let direct = Workspace::Direct("/srv/data".to_owned());
        assert_eq!(shown(&direct, &[]), (private, vec![]));
        assert_eq!(shown(&direct, &[""]), (direct.clone(), vec![]));
    }

    #[test]
    fn a_running_server_reads_its_install_and_writes_its_copy() {
        let copy = Workspace::Copy(PathBuf::from("/state/work/mcp-time"));
        let mounts = mounts_of_server(&copy, Some(Path::new("/state/cache/k")));
        let shown: Vec<_> = mounts
            .iter()
            .map(|mount| (mount.mount_path.as_str(), mount.is_writable))
            .collect();
        assert_eq!(shown, [("/workspace", true), ("/opt/mcp", false)]);
    }
}
