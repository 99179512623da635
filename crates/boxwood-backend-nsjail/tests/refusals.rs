//! Errors of starts that must fail, and that they leave nothing behind.
#![forbid(unsafe_code)]

mod support;

use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, ensure};
use boxwood_api::ErrorCode;
use boxwood_backend::{Backend, Outcome, StartError};
use boxwood_suites::{BackendSetup as _, BoxSpec, Fixture, StateDirs, failed, run_trials, runtime};
use libtest_mimic::Trial;

fn main() {
    run_trials(vec![
        test("a_missing_program_is_unavailable", missing_program),
        test("a_program_that_fails_is_unavailable", failing_program),
        test("an_image_is_refused_by_name", image),
    ])
}

fn test(name: &str, body: fn() -> anyhow::Result<()>) -> Trial {
    Trial::test(name, move || body().map_err(|error| failed(&error)))
}

/// The error of a start with this nsjail program, and the outcomes of its probe.
fn start_and_probe(program: &Path, spec: &BoxSpec) -> anyhow::Result<(StartError, Vec<Outcome>)> {
    let dirs = StateDirs::make()?;
    let backend: Arc<dyn Backend> = support::launch(&dirs, program.to_owned())?;
    let runtime = runtime()?;
    let answer = runtime.block_on(async {
        let fixture = Fixture::new(Arc::clone(&backend), support::Nsjail.host()?)?;
        let answer = fixture.try_start(spec).await?;
        let probe = backend.probe().await?;
        drop(fixture);
        backend.shutdown().await;
        let Err(error) = answer else {
            bail!("a box was started")
        };
        let outcomes = probe.findings.into_iter().map(|finding| finding.outcome);
        Ok((error, outcomes.collect()))
    })?;
    let leftovers = std::fs::read_dir(dirs.run_dir())?.count();
    ensure!(
        leftovers == 0,
        "{leftovers} files were left in the run directory"
    );
    // The directory of the bootstrap sockets is removed once it is empty.
    let boxes = dirs.state_dir().join("boxes");
    ensure!(!boxes.exists(), "`{}` was left", boxes.display());
    Ok(answer)
}

fn missing_program() -> anyhow::Result<()> {
    let (error, outcomes) = start_and_probe(Path::new("/no/such/nsjail"), &BoxSpec::new())?;
    ensure!(error.code() == ErrorCode::BackendUnavailable, "{error:?}");
    ensure!(error.to_string().contains("/no/such/nsjail"), "{error}");
    ensure!(error.hint().is_some_and(|hint| hint.contains("install")));
    let names_install = |outcome: &Outcome| matches!(outcome, Outcome::Fatal { fix, .. } if fix.contains("install"));
    ensure!(outcomes.iter().any(names_install), "{outcomes:?}");
    Ok(())
}

fn failing_program() -> anyhow::Result<()> {
    let (error, outcomes) = start_and_probe(Path::new("/bin/false"), &BoxSpec::new())?;
    ensure!(error.code() == ErrorCode::BackendUnavailable, "{error:?}");
    ensure!(error.hint().is_some(), "{error:?}");
    let fatal = |outcome: &Outcome| matches!(outcome, Outcome::Fatal { .. });
    ensure!(outcomes.iter().any(fatal), "{outcomes:?}");
    Ok(())
}

fn image() -> anyhow::Result<()> {
    let (error, outcomes) = start_and_probe(
        &support::program()?,
        &BoxSpec::new().image(Path::new("/usr")),
    )?;
    ensure!(matches!(error, StartError::Unsupported { .. }), "{error:?}");
    ensure!(error.to_string().contains("native"), "{error}");
    // The backend works otherwise.
    let fatal = |outcome: &Outcome| matches!(outcome, Outcome::Fatal { .. });
    ensure!(!outcomes.iter().any(fatal), "{outcomes:?}");
    Ok(())
}
