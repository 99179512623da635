//! What the nsjail backend's test binaries share: how it is launched here, and what is expected.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;
use boxwood_backend::Backend;
use boxwood_backend::suite::{
    Absence, Host, NotOffered, Offer, Places, Privilege, Subject, machine,
};
use boxwood_backend_nsjail::{NsjailBackend, NsjailSettings};
use boxwood_local::{LocalHost, Settings};

pub(crate) struct Nsjail;

impl Subject for Nsjail {
    fn column(&self) -> String {
        "nsjail".to_owned()
    }

    fn host(&self) -> anyhow::Result<Host> {
        let mut absent = vec![Absence {
            mechanism: Mechanism::KernelBoundary,
            why: "nsjail boxes run on the host's own kernel",
        }];
        if !machine::has_landlock() {
            absent.push(Absence {
                mechanism: Mechanism::Landlock,
                why: "the kernel does not offer it",
            });
        }
        Ok(Host {
            absent,
            not_offered: vec![NotOffered {
                offer: Offer::Images,
                why: "the root is made of the host's own system",
            }],
            network: true,
            counters: true,
            ..Host::new(Privilege::Root)
        })
    }

    fn launch(&self, places: &Places) -> anyhow::Result<Arc<dyn Backend>> {
        launch(places, program()?)
    }
}

/// A backend that uses this program.
pub(crate) fn launch(places: &Places, program: PathBuf) -> anyhow::Result<Arc<dyn Backend>> {
    ensure!(
        machine::privilege() == Privilege::Root,
        "the suites on nsjail run as root"
    );
    let settings = Settings {
        state_dir: places.state_dir(),
        run_dir: places.run_dir(),
        ..Settings::default()
    };
    let host = LocalHost::launch(&settings)?;
    let settings = NsjailSettings { program };
    Ok(Arc::new(NsjailBackend::new(host, settings)))
}

/// The nsjail to test with. Absent is a failure: a suite that runs nothing proves nothing.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    std::env::var_os("BOXWOOD_TEST_NSJAIL")
        .map(PathBuf::from)
        .context("BOXWOOD_TEST_NSJAIL must name the nsjail program")
}
