//! `cargo xtask e2e-langbot`: a real LangBot on Boxwood, slower than the tiers of `test`.
//!
//! Comes in: which LangBot, and whose runtime. Goes out: success when every step passed; logs of
//! both programs under `target/langbot/`. Never here: the steps; `tests/langbot/e2e/run.py` has them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, check, target_dir, workspace_root};
use crate::venv;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which LangBot
    #[arg(long, value_name = "VERSION", default_value = LANGBOTS[0], value_parser = LANGBOTS)]
    langbot: String,
    /// The seed's own runtime in Boxwood's place: tells whether a failure is ours or the step's
    #[arg(long)]
    seed: bool,
    /// A `boxwood` that is built already
    #[arg(long, value_name = "PROGRAM", conflicts_with = "seed")]
    boxwood: Option<PathBuf>,
    /// Leave LangBot's data directory and the daemon's state for a look
    #[arg(long)]
    keep: bool,
}

/// Each has a `requirements-VERSION.txt` beside the driver.
const LANGBOTS: [&str; 1] = ["4.10.1"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let driver = workspace_root().join("tests/langbot/e2e");
    let requirements = driver.join(format!("requirements-{}.txt", args.langbot));
    let place = target_dir().join("langbot");
    let python = venv::ensure(
        &place.join(format!("venv-langbot-{}", args.langbot)),
        &requirements,
    )?;

    let logs = place.join(format!("e2e-{}", args.langbot));
    let mut work = tempfile::Builder::new()
        .prefix("boxwood-e2e-")
        .tempdir()
        .context("no temporary directory")?;
    work.disable_cleanup(args.keep);
    let mut command = Command::new(&python);
    command
        .arg(driver.join("run.py"))
        .arg("--work")
        .arg(work.path())
        .arg("--logs")
        .arg(&logs)
        // What Python compiles would lie about in the source tree.
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if args.seed {
        command.arg("--seed-python").arg(&python);
    } else {
        command.arg("--boxwood").arg(match &args.boxwood {
            Some(program) => program.clone(),
            None => build()?,
        });
    }
    println!("LangBot {}, logs in {}", args.langbot, logs.display());
    let result = check(&mut command);
    if args.keep {
        println!("kept: {}", work.path().display());
        return result;
    }
    let path = work.path().to_owned();
    let removed = work
        .close()
        .with_context(|| format!("`{}` could not be removed", path.display()));
    // A failed step explains a directory that is still busy, not the other way round.
    result.and(removed)
}

fn build() -> Result<PathBuf> {
    check(cargo().args(["build", "--package", "boxwood"]))?;
    let program = target_dir().join("debug/boxwood");
    ensure!(program.is_file(), "the build left no `debug/boxwood`");
    Ok(program)
}
