//! The suites on real engines.

use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::{Outcome, rootless, suites};
use crate::engines::{self, Engine, Engines, Started};
use crate::run::is_root;

const NOT_ROOT: &str = "not root: starting the engines needs root";

static BACKGROUND: Mutex<Option<JoinHandle<Result<()>>>> = Mutex::new(None);

/// Starts to prepare the engines in a thread, for which [`prepared`] waits.
pub(super) fn prepare_in_background() {
    if is_root()
        && let Ok(mut background) = BACKGROUND.lock()
    {
        *background = Some(std::thread::spawn(|| {
            engines::prepare(Engine::value_variants())
        }));
    }
}

/// Waits for the thread without its result, which [`prepared`] returns.
pub(super) fn wait_for_background() {
    let ended = || {
        let background = BACKGROUND.lock();
        background.map_or(true, |slot| {
            slot.as_ref().is_none_or(JoinHandle::is_finished)
        })
    };
    while !ended() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until everything is prepared, because later tiers count processes and mounts of the whole host.
pub(super) fn prepared() -> Result<Outcome> {
    if !is_root() {
        return Ok(Outcome::Skipped(NOT_ROOT.into()));
    }
    let background = BACKGROUND.lock().ok().and_then(|mut slot| slot.take());
    match background.map(JoinHandle::join) {
        None => engines::prepare(Engine::value_variants())?,
        Some(Ok(result)) => result?,
        Some(Err(_)) => bail!("preparing the engines panicked, see above"),
    }
    Ok(Outcome::Passed)
}

/// Whether the tier of this name runs on an engine.
pub(super) fn is_tier(name: &str) -> bool {
    Engine::value_variants()
        .iter()
        .filter_map(ValueEnum::to_possible_value)
        .any(|engine| engine.get_name() == name)
}

pub(super) fn run(engine: Engine) -> Result<Outcome> {
    if !is_root() {
        return Ok(Outcome::Skipped(NOT_ROOT.into()));
    }
    // Done already, unless this tier runs alone.
    engines::prepare(&[engine])?;
    // Before the engine starts, so that it does not run during the build.
    suites::build()?;
    let engines = Engines::start(&[engine])?;
    let started = engines.started();
    if let Some(why) = &started.no_gvisor {
        println!("{why}");
        return Ok(Outcome::Skipped(
            why.lines().last().unwrap_or("runsc does not run").into(),
        ));
    }
    match engine {
        Engine::PodmanRootless => {
            rootless::run(
                suites::CONTAINER,
                suites::CONTAINER,
                &started.user_variables,
            )?;
        }
        Engine::Gvisor => suites::run_with(suites::CONTAINER, &started.variables)?,
        Engine::Docker => run_all(suites::CONTAINER, &["docker", "containers"], started)?,
        Engine::Podman => run_all(suites::CONTAINER, &["podman", "containers"], started)?,
        Engine::Nsjail => run_all(suites::NSJAIL, &["nsjail"], started)?,
    }
    Ok(Outcome::Passed)
}

/// The suites of a backend, and the tests that drive the real daemon on its engine.
fn run_all(backend: &str, modules: &[&str], started: &Started) -> Result<()> {
    suites::run_with(&suites::engine_filter(backend, modules), &started.variables)
}
