//! Turns suite cases into named tests, each with a backend of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use boxwood_backend::suite::{Bench, Case, run_case};
use boxwood_backend_native::NativeBackend;
use boxwood_local::{LocalHost, Settings};
use libtest_mimic::{Arguments, Failed, Trial};

/// As many blank boxes as a daemon keeps by default.
const POOL: usize = 4;

/// Ends the process with the outcome of the named cases.
#[allow(dead_code, reason = "the leak checks have a list of their own")]
pub(crate) fn run(cases: Vec<Case>) -> ! {
    let trials = cases
        .into_iter()
        .map(|case| {
            Trial::test(case.name, move || {
                alone(case).map_err(|error| failed(&error))
            })
        })
        .collect();
    conclude(trials)
}

/// On the main thread, one after the other: launching a backend forks, and wants no thread beside
/// it. The runner of the whole workspace gives every test a process of its own anyway.
pub(crate) fn conclude(trials: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit()
}

pub(crate) fn failed(error: &anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

#[allow(dead_code, reason = "as `run`")]
fn alone(case: Case) -> anyhow::Result<()> {
    let places = Places::make()?;
    let backend = places.launch()?;
    let runtime = runtime()?;
    let bench = Bench::new(Arc::new(backend), super::host::describe())?;
    let outcome = runtime.block_on(run_case(case, bench));
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
}

/// State and run directories that go with the test.
pub(crate) struct Places {
    directory: tempfile::TempDir,
}

impl Places {
    pub(crate) fn make() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("boxwood-suite-")
            .tempdir()
            .context("making directories for the backend")?;
        for name in ["state", "run"] {
            std::fs::create_dir(directory.path().join(name))?;
        }
        Ok(Self { directory })
    }

    #[allow(
        dead_code,
        reason = "only the leak checks look at the places themselves"
    )]
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        ["state", "run"]
            .map(|name| self.directory.path().join(name))
            .into()
    }

    /// Before any thread is started.
    pub(crate) fn launch(&self) -> anyhow::Result<NativeBackend> {
        let settings = Settings {
            state_dir: self.directory.path().join("state"),
            run_dir: self.directory.path().join("run"),
            ..Settings::default()
        };
        let host = LocalHost::launch(&settings).map_err(|error| {
            let hint = error.hint().unwrap_or("run `boxwood doctor`").to_owned();
            anyhow::Error::new(error).context(format!(
                "native boxes cannot be started on this host (hint: {hint})"
            ))
        })?;
        Ok(NativeBackend::new(host, POOL))
    }
}
