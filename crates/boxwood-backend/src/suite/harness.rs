//! Turns suite cases into named tests, each with a backend of its own.
//!
//! Comes in: a [`Subject`], which knows how to launch one backend and what its host gives. Goes out:
//! the process's exit status. Never here: which backend that is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use libtest_mimic::{Arguments, Failed, Trial};

use super::{Bench, Case, Host, matrix, run_case, succession};
use crate::Backend;

/// A backend as its own tests set it up.
pub trait Subject: Send + Sync + 'static {
    /// Its column in the table of backends: `native`, `podman-rootless`. Also a file's name.
    fn column(&self) -> String;
    /// What is expected here, found out without asking the backend.
    fn host(&self) -> anyhow::Result<Host>;
    /// Called on the main thread before any other is started: launching may fork.
    fn launch(&self, places: &Places) -> anyhow::Result<Arc<dyn Backend>>;
    /// Has an engine make what it makes with its first container and keeps, such as a cgroup for all.
    fn warm_up(&self) -> anyhow::Result<()> {
        Ok(())
    }
    /// What only an engine's own books show, such as its containers. Nothing, where there is none.
    fn books(&self) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// Programs of an engine that live on after whoever called it, and end by themselves. The leak
    /// checks, which are handed every orphan, have to bury them.
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
pub fn run_conformance(subject: impl Subject) -> ! {
    succession::be_the_first_if_asked(&subject, &super::adoption());
    let subject = Arc::new(subject);
    let mut trials = trials(&subject, super::conformance());
    trials.extend(succession::trials(&subject, super::adoption()));
    trials.push(Trial::test("matrix::the_column_is_written", move || {
        let outcome = on_bench(subject.as_ref(), |bench| {
            let subject = Arc::clone(&subject);
            async move {
                let outcome = matrix::write(&bench, &subject.column()).await;
                bench.close().await.and(outcome)
            }
        });
        outcome.map_err(|error| failed(&error))
    }));
    conclude(trials)
}

/// The escape suite. Ends the process.
pub fn run_escape(subject: impl Subject) -> ! {
    conclude(trials(&Arc::new(subject), super::escape()))
}

fn trials<S: Subject>(subject: &Arc<S>, cases: Vec<Case>) -> Vec<Trial> {
    // Listing must work where nothing was chosen to run; a run then fails, and says why.
    let host = subject.host().ok();
    let trial = |case: Case| {
        let not_offered = host.as_ref().and_then(|host| case.not_offered(host));
        let subject = Arc::clone(subject);
        let trial = Trial::test(case.name, move || {
            let outcome = on_bench(subject.as_ref(), |bench| run_case(case, bench));
            outcome.map_err(|error| failed(&error))
        });
        match not_offered {
            None => trial,
            // Listed by its reason, counted as skipped, never as passed.
            Some(offer) => trial
                .with_kind(format!("not offered: {}", offer.name()))
                .with_ignored_flag(true),
        }
    };
    cases.into_iter().map(trial).collect()
}

/// On the main thread, one after the other: launching a backend forks, and wants no thread beside
/// it. The runner of the whole workspace gives every test a process of its own anyway.
pub fn conclude(trials: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit()
}

pub fn failed(error: &anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// Launches a backend of the test's own and works on a bench with it.
fn on_bench<F>(subject: &dyn Subject, work: impl FnOnce(Bench) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let host = subject.host()?;
    let places = Places::make()?;
    let backend = subject.launch(&places)?;
    let runtime = runtime()?;
    let bench = Bench::new(backend, host)?;
    let outcome = runtime.block_on(async {
        bench.backend().settle().await;
        work(bench).await
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

/// State and run directories that go with the test.
pub struct Places {
    directory: PathBuf,
    /// Whoever made the directory removes it.
    _own: Option<tempfile::TempDir>,
}

impl Places {
    pub fn make() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("boxwood-suite-")
            .tempdir()
            .context("making directories for the backend")?;
        let places = Self {
            directory: directory.path().to_owned(),
            _own: Some(directory),
        };
        for place in places.all() {
            std::fs::create_dir(place)?;
        }
        Ok(places)
    }

    /// Those that another process made.
    pub(super) fn of(directory: PathBuf) -> Self {
        Self {
            directory,
            _own: None,
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub fn run_dir(&self) -> PathBuf {
        self.directory.join("run")
    }

    /// Where a backend may leave things.
    pub fn all(&self) -> Vec<PathBuf> {
        vec![self.state_dir(), self.run_dir()]
    }
}
