//! What the container backend's test binaries share: which engine, how it is launched, and what is
//! expected of it.

mod absent;
mod chosen;
mod tcp;

use std::sync::Arc;

use boxwood_backend::Backend;
use boxwood_backend::suite::machine::{has_landlock, installed, opens_tun, privilege};
use boxwood_backend::suite::{Host, ImagesFrom, Places, Privilege, RootFrom, Subject};
use boxwood_backend_container::ContainerBackend;
use boxwood_local::{LocalHost, Settings};

pub(crate) use chosen::Chosen;

pub(crate) struct Containers;

impl Subject for Containers {
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
        // Descriptors and namespaces are within reach.
        let direct = !matches!(chosen, Chosen::Gvisor | Chosen::Remote);
        // Docker shares the host's user namespace; Podman gives each box one of its own.
        let users_of_its_own = chosen == Chosen::Podman;
        Ok(Host {
            absent: absent::on(chosen, privilege, has_landlock()),
            not_offered: absent::offers_of(chosen),
            network: direct && (root || (installed("pasta") && opens_tun())),
            counters: root && direct,
            root_inside: users_of_its_own,
            unbounded_writable_root: true,
            // Docker's boxes share a uid, and Podman's user namespaces an owner.
            own_counts: false,
            root: RootFrom::AnImage,
            images: ImagesFrom::Import,
            crowd: 6,
            ..Host::new(privilege)
        })
    }

    fn launch(&self, places: &Places) -> anyhow::Result<Arc<dyn Backend>> {
        let settings = Settings {
            state_dir: places.state_dir(),
            run_dir: places.run_dir(),
            ..Settings::default()
        };
        let host = LocalHost::launch(&settings)?;
        // Later than the launch, which forks: this may start threads.
        let container = Chosen::from_environment()?.settings()?;
        Ok(Arc::new(ContainerBackend::new(host, container)))
    }

    fn warm_up(&self) -> anyhow::Result<()> {
        Chosen::from_environment()?.warm_up()
    }

    fn books(&self) -> anyhow::Result<Vec<String>> {
        Chosen::from_environment()?.books()
    }

    fn orphans(&self) -> &'static [&'static str] {
        // Each container's watcher, and whoever clears up when it ends.
        &["conmon", "podman", "runc"]
    }
}
