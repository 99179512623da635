//! Shared by the test binaries of the nsjail backend: how it is launched, and what is expected.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;
use boxwood_backend::Backend;
use boxwood_backend_nsjail::{NsjailBackend, NsjailSettings};
use boxwood_local::{LocalHost, Settings};
use boxwood_suites::{
    BackendSetup, Feature, Host, MissingFeature, MissingMechanism, Privilege, StateDirs, machine,
};

pub(crate) struct Nsjail;

impl BackendSetup for Nsjail {
    fn column(&self) -> String {
        "nsjail".to_owned()
    }

    fn host(&self) -> anyhow::Result<Host> {
        let mut absent = vec![MissingMechanism {
            mechanism: Mechanism::KernelBoundary,
            why: "nsjail boxes run on the host's own kernel",
        }];
        if !machine::has_landlock() {
            absent.push(MissingMechanism {
                mechanism: Mechanism::Landlock,
                why: "the kernel does not support it",
            });
        }
        Ok(Host {
            missing_mechanisms: absent,
            missing_features: vec![MissingFeature {
                feature: Feature::Images,
                why: "the root consists of the host's system directories",
            }],
            network: true,
            counters: true,
            ..Host::new(Privilege::Root)
        })
    }

    fn launch(&self, dirs: &StateDirs) -> anyhow::Result<Arc<dyn Backend>> {
        launch(dirs, program()?)
    }
}

/// A backend that uses this program.
pub(crate) fn launch(dirs: &StateDirs, program: PathBuf) -> anyhow::Result<Arc<dyn Backend>> {
    ensure!(
        machine::privilege() == Privilege::Root,
        "the nsjail suites must run as root"
    );
    let settings = Settings {
        state_dir: dirs.state_dir(),
        run_dir: dirs.run_dir(),
        ..Settings::default()
    };
    let host = LocalHost::launch(&settings)?;
    let settings = NsjailSettings { program };
    Ok(Arc::new(NsjailBackend::new(host, settings)))
}

/// The nsjail program to test. A missing one is a failure, because a suite that runs nothing proves nothing.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    std::env::var_os("BOXWOOD_TEST_NSJAIL")
        .map(PathBuf::from)
        .context("BOXWOOD_TEST_NSJAIL must name the nsjail program")
}
