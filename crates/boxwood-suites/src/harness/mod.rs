//! Turns suite cases into named tests, each with a backend of its own.
//!
//! A [`BackendSetup`] launches the backend and describes its host.

pub(crate) mod box_spec;
pub(crate) mod case;
pub(crate) mod fixture;
pub(crate) mod fork_tree;
pub(crate) mod handover;
pub(crate) mod host;
pub(crate) mod host_side;
mod images;
pub mod machine;
mod matrix;
pub(crate) mod test_box;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Case, Fixture, Host, run_case};
use boxwood_backend::Backend;

/// A backend as its own tests set it up.
pub trait BackendSetup: Send + Sync + 'static {
    /// Its column in the table of backends: `native`, `podman-rootless`. Also a file's name.
    fn column(&self) -> String;
    /// What is expected on this host, determined without the backend.
    fn host(&self) -> anyhow::Result<Host>;
    /// Called on the main thread before any other thread is started: launching may fork.
    fn launch(&self, dirs: &StateDirs) -> anyhow::Result<Arc<dyn Backend>>;
    /// Lets an engine create what it creates with its first container and keeps, such as a parent cgroup.
    fn warm_up(&self) -> anyhow::Result<()> {
        Ok(())
    }
    /// Objects that only an engine lists, such as its containers.
    fn engine_objects(&self) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// Programs of an engine that outlive its client and end by themselves. The leak tests, which become the parent of
    /// every orphan, have to reap them.
    fn orphans(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Whether the long forms of tests are wanted (`cargo xtask test --long`): the same steps, many more times.
pub fn long_form() -> bool {
    std::env::var_os("BOXWOOD_TEST_LONG").is_some()
}

/// The conformance suite, and with it this backend's column in the table of backends. Ends the
/// process.
pub fn run_conformance(setup: impl BackendSetup) -> ! {
    handover::run_as_earlier_daemon_if_requested(&setup, &crate::conformance::adoption());
    let setup = Arc::new(setup);
    let mut trials = trials(&setup, crate::conformance());
    trials.extend(handover::trials(&setup, crate::conformance::adoption()));
    trials.push(Trial::test("matrix::the_column_is_written", move || {
        let outcome = with_fixture(setup.as_ref(), |fixture| {
            let setup = Arc::clone(&setup);
            async move {
                let outcome = matrix::write(&fixture, &setup.column()).await;
                fixture.close().await.and(outcome)
            }
        });
        outcome.map_err(|error| failed(&error))
    }));
    run_trials(trials)
}

/// The escape suite. Ends the process.
pub fn run_escape(setup: impl BackendSetup) -> ! {
    run_trials(trials(&Arc::new(setup), crate::escape()))
}

fn trials<S: BackendSetup>(setup: &Arc<S>, cases: Vec<Case>) -> Vec<Trial> {
    // Tests can be listed on a host that cannot be described; running them fails with the reason.
    let host = setup.host().ok();
    let trial = |case: Case| {
        let missing_feature = host.as_ref().and_then(|host| case.missing_feature(host));
        let setup = Arc::clone(setup);
        let trial = Trial::test(case.name, move || {
            let outcome = with_fixture(setup.as_ref(), |fixture| run_case(case, fixture));
            outcome.map_err(|error| failed(&error))
        });
        match missing_feature {
            None => trial,
            // Listed with its reason and counted as ignored, not as passed.
            Some(feature) => trial
                .with_kind(format!("not offered: {}", feature.name()))
                .with_ignored_flag(true),
        }
    };
    cases.into_iter().map(trial).collect()
}

/// Runs the tests on the main thread, one after the other: launching a backend forks, so there must be no other thread.
/// `cargo nextest` runs each test in a process of its own anyway.
pub fn run_trials(trials: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit()
}

pub fn failed(error: &anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// Launches a backend for one test and runs `work` with a fixture.
fn with_fixture<F>(setup: &dyn BackendSetup, work: impl FnOnce(Fixture) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let host = setup.host()?;
    let dirs = StateDirs::make()?;
    let backend = setup.launch(&dirs)?;
    let runtime = runtime()?;
    let fixture = Fixture::new(backend, host)?;
    let outcome = runtime.block_on(async {
        fixture.backend().finish_adoption().await;
        work(fixture).await
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
}

/// State and run directories, which are removed after the test.
pub struct StateDirs {
    directory: PathBuf,
    /// The creator of the directory removes it.
    _own: Option<tempfile::TempDir>,
}

impl StateDirs {
    pub fn make() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("boxwood-suite-")
            .tempdir()
            .context("making directories for the backend")?;
        let dirs = Self {
            directory: directory.path().to_owned(),
            _own: Some(directory),
        };
        for directory in dirs.all() {
            std::fs::create_dir(directory)?;
        }
        Ok(dirs)
    }

    /// The directories that another process created.
    pub(crate) fn of(directory: PathBuf) -> Self {
        Self {
            directory,
            _own: None,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub fn run_dir(&self) -> PathBuf {
        self.directory.join("run")
    }

    /// The directories in which a backend may leave files.
    pub fn all(&self) -> Vec<PathBuf> {
        vec![self.state_dir(), self.run_dir()]
    }
}
