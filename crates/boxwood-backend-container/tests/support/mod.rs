//! Shared by the test binaries of the container backend: which engine, how it is launched, and what is
//! expected.

mod absent;
mod chosen;
mod tcp;

use std::sync::Arc;

use boxwood_backend::Backend;
use boxwood_backend_container::ContainerBackend;
use boxwood_local::{LocalHost, Settings};
use boxwood_suites::machine::{has_landlock, installed, opens_tun, privilege};
use boxwood_suites::{BackendSetup, Host, ImagesFrom, Privilege, RootFrom, StateDirs};

pub(crate) use chosen::Chosen;

pub(crate) struct Containers;

impl BackendSetup for Containers {
    fn column(&self) -> String {
        let rootless = privilege() != Privilege::Root;
        match Chosen::from_environment() {
            Ok(chosen) if rootless => format!("{}-rootless", chosen.name()),
            Ok(chosen) => chosen.name().to_owned(),
            Err(_) => "container".to_owned(),
        }
    }

    fn host(&self) -> anyhow::Result<Host> {
        let chosen = Chosen::from_environment()?;
        let privilege = privilege();
        let root = privilege == Privilege::Root;
        // Descriptors can be passed and namespaces entered.
        let direct = !matches!(chosen, Chosen::Gvisor | Chosen::Remote);
        // Docker uses the host's user namespace; Podman creates one per box.
        let users_of_its_own = chosen == Chosen::Podman;
        Ok(Host {
            missing_mechanisms: absent::on(chosen, privilege, has_landlock()),
            missing_features: absent::missing_features(chosen),
            network: direct && (root || (installed("pasta") && opens_tun())),
            counters: root && direct,
            root_inside: users_of_its_own,
            unbounded_writable_root: true,
            // Docker's boxes share a uid, and Podman's user namespaces share an owner.
            own_counts: false,
            root: RootFrom::AnImage,
            images: ImagesFrom::Import,
            crowd: 6,
            ..Host::new(privilege)
        })
    }

    fn launch(&self, dirs: &StateDirs) -> anyhow::Result<Arc<dyn Backend>> {
        let settings = Settings {
            state_dir: dirs.state_dir(),
            run_dir: dirs.run_dir(),
            ..Settings::default()
        };
        let host = LocalHost::launch(&settings)?;
        // After the launch, which forks: this may start threads.
        let container = Chosen::from_environment()?.settings()?;
        Ok(Arc::new(ContainerBackend::new(host, container)))
    }

    fn warm_up(&self) -> anyhow::Result<()> {
        Chosen::from_environment()?.warm_up()
    }

    fn engine_objects(&self) -> anyhow::Result<Vec<String>> {
        Chosen::from_environment()?.engine_objects()
    }

    fn orphans(&self) -> &'static [&'static str] {
        // The monitor of each container, and the process that cleans up after it.
        &["conmon", "podman", "runc"]
    }
}
