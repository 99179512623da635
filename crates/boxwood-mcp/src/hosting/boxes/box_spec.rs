//! Box specs for servers and installers.

use std::path::Path;

use boxwood_api::{
    DEFAULT_MOUNT_PATH, McpServerSpec, MountMode, MountSpec, Network, SessionId, SpecRequest,
};

use crate::hosting::HostingMount;
use crate::hosting::launch::{CACHE, HostDirectory, NODE_MODULES, SOURCES};

pub(crate) fn of_server(
    spec: &McpServerSpec,
    session: &SessionId,
    directories: &[HostDirectory],
    lifetime: BoxLifetime,
) -> SpecRequest {
    let settings = &spec.settings;
    let mode = settings.host_path_mode;
    let whole = directories
        .iter()
        .find(|directory| directory.name.is_empty());
    let parts = directories
        .iter()
        .filter(|directory| !directory.name.is_empty());
    SpecRequest {
        host_path: whole.map(|directory| directory.real.display().to_string()),
        host_path_mode: whole.map(|_| mode),
        extra_mounts: parts
            .map(|directory| mount_of(directory, DEFAULT_MOUNT_PATH, mode))
            .collect(),
        env: settings.env.clone(),
        network: Some(settings.network),
        cpus: settings.cpus,
        memory_mb: settings.memory_mb,
        pids_limit: settings.pids_limit,
        // Many servers write next to their code.
        read_only_rootfs: Some(settings.read_only_rootfs.unwrap_or(false)),
        persistent: Some(lifetime == BoxLifetime::Persistent),
        ..common(spec, session)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoxLifetime {
    Persistent,
    Test,
}

/// An installer always has network access, so its box contains only the directories it installs from. The memory limit
/// is that of the profile; [`installer_memory`] may raise it.
pub(crate) fn of_installer(
    spec: &McpServerSpec,
    session: &SessionId,
    parts: &[HostDirectory],
) -> SpecRequest {
    SpecRequest {
        extra_mounts: parts
            .iter()
            .map(|part| mount_of(part, SOURCES, MountMode::Ro))
            .collect(),
        network: Some(Network::On),
        read_only_rootfs: Some(false),
        persistent: Some(false),
        ..common(spec, session)
    }
}

/// The server's memory setting if it exceeds the profile's. Installers often need more memory than the server, so a
/// lower setting does not apply to them.
pub(crate) fn installer_memory(spec: &McpServerSpec, profile_mb: u64) -> Option<u64> {
    spec.settings.memory_mb.filter(|mb| *mb > profile_mb)
}

/// A spec that checks whether a directory may be mounted, before it is read.
pub(crate) fn mount_check(
    spec: &McpServerSpec,
    session: &SessionId,
    host_path: &Path,
    mode: MountMode,
) -> SpecRequest {
    SpecRequest {
        host_path: Some(host_path.display().to_string()),
        host_path_mode: Some(mode),
        ..common(spec, session)
    }
}

/// The mount of an install, and a second one of its modules where Node searches for them.
pub(crate) fn mounts_of_install(install: &Path, has_node_modules: bool) -> Vec<HostingMount> {
    let mount = |host_path: &Path, mount_path: &str| HostingMount {
        host_path: host_path.to_owned(),
        mount_path: mount_path.to_owned(),
        is_writable: false,
    };
    let mut mounts = vec![mount(install, CACHE)];
    if has_node_modules {
        mounts.push(mount(&install.join("node_modules"), NODE_MODULES));
    }
    mounts
}

fn mount_of(directory: &HostDirectory, below: &str, mode: MountMode) -> MountSpec {
    let mount_path = match directory.name.as_str() {
        "" => below.to_owned(),
        name => format!("{below}/{name}"),
    };
    MountSpec {
        host_path: directory.real.display().to_string(),
        mount_path,
        mode,
    }
}

fn common(spec: &McpServerSpec, session: &SessionId) -> SpecRequest {
    let settings = &spec.settings;
    SpecRequest {
        session_id: Some(session.clone()),
        profile: settings.profile.clone(),
        backend: settings.backend.clone(),
        image: settings.image.clone(),
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

    fn directory(name: &str, real: &str) -> HostDirectory {
        HostDirectory {
            name: name.to_owned(),
            real: real.into(),
        }
    }

    fn session() -> SessionId {
        SessionId::new("mcp-time").expect("an id")
    }

    #[test]
    fn unset_settings_are_left_to_the_profile() {
        let request = of_server(
            &spec(&serde_json::json!({})),
            &session(),
            &[],
            BoxLifetime::Persistent,
        );
        let expected = SpecRequest {
            session_id: Some(session()),
            network: Some(Network::On),
            read_only_rootfs: Some(false),
            persistent: Some(true),
            ..SpecRequest::default()
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn settings_are_copied_to_the_spec() {
        let settings = serde_json::json!({
            "image": "python:3.13", "network": "off", "env": {"LANG": "C"}, "cpus": 0.5,
            "memory_mb": 256, "pids_limit": 64, "read_only_rootfs": true, "profile": "strict",
            "backend": "native",
        });
        let request = of_server(
            &spec(&settings),
            &session(),
            &[directory("", "/srv/data")],
            BoxLifetime::Test,
        );
        let shown = serde_json::to_value(&request).expect("JSON");
        let expected = serde_json::json!({
            "session_id": "mcp-time", "image": "python:3.13", "network": "off",
            "env": {"LANG": "C"}, "cpus": 0.5, "memory_mb": 256, "pids_limit": 64,
            "read_only_rootfs": true, "profile": "strict", "backend": "native",
            "host_path": "/srv/data", "host_path_mode": "ro", "persistent": false,
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_installer_has_network_and_no_secrets_and_writes_only_to_the_cache() {
        let server = spec(&serde_json::json!({
            "network": "off", "memory_mb": 64, "env": {"A": "b"}, "read_only_rootfs": true,
        }));
        let parts = [directory("", "/srv/data"), directory("a/b", "/srv/b")];
        let request = of_installer(&server, &session(), &parts);
        assert_eq!(request.network, Some(Network::On));
        assert_eq!(request.memory_mb, None);
        assert_eq!(installer_memory(&server, 512), None);
        assert_eq!(request.host_path, None);
        let mounts: Vec<_> = request
            .extra_mounts
            .iter()
            .map(|mount| {
                (
                    mount.host_path.as_str(),
                    mount.mount_path.as_str(),
                    mount.mode,
                )
            })
            .collect();
        let expected = [
            ("/srv/data", "/opt/mcp-sources", MountMode::Ro),
            ("/srv/b", "/opt/mcp-sources/a/b", MountMode::Ro),
        ];
        assert_eq!(mounts, expected);
        assert!(!format!("{request:?}").contains("secret"));
    }

    #[test]
    fn a_higher_memory_limit_applies_to_the_installer() {
        for (memory_mb, profile_mb, expected) in [
            (768, 512, Some(768)),
            (4096, 512, Some(4096)),
            (512, 512, None),
            (768, 1024, None),
        ] {
            let server = spec(&serde_json::json!({"memory_mb": memory_mb}));
            assert_eq!(
                installer_memory(&server, profile_mb),
                expected,
                "{memory_mb}"
            );
        }
    }

    #[test]
    fn several_directories_are_mounted_side_by_side() {
        for (mode, expected) in [("ro", MountMode::Ro), ("rw", MountMode::Rw)] {
            let server = spec(&serde_json::json!({"host_path_mode": mode}));
            let directories = [directory("a", "/srv/a"), directory("b", "/home/b")];
            let request = of_server(&server, &session(), &directories, BoxLifetime::Persistent);
            assert_eq!(request.host_path, None);
            let mounts: Vec<_> = request
                .extra_mounts
                .iter()
                .map(|mount| (mount.mount_path.as_str(), mount.mode))
                .collect();
            assert_eq!(
                mounts,
                [("/workspace/a", expected), ("/workspace/b", expected)]
            );
        }
    }

    #[test]
    fn an_install_is_read_only() {
        let mounts = mounts_of_install(Path::new("/state/cache/k"), true);
        let shown: Vec<_> = mounts
            .iter()
            .map(|mount| (mount.mount_path.as_str(), mount.is_writable))
            .collect();
        assert_eq!(shown, [("/opt/mcp", false), ("/node_modules", false)]);
    }
}
