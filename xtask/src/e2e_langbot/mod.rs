//! `cargo xtask e2e-langbot`: a real LangBot on Boxwood, slower than the tiers of `test`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{build_boxwood, check, target_dir, workspace_root};
use crate::venv;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this LangBot (may be given more than once)
    #[arg(long, value_name = "VERSION", value_parser = LANGBOTS.map(|langbot| langbot.version))]
    langbot: Vec<String>,
    /// Use LangBot Box instead of Boxwood, to tell a failure of Boxwood from one of the test
    #[arg(long)]
    langbot_box: bool,
    /// A `boxwood` that is built already
    #[arg(long, value_name = "PROGRAM", conflicts_with = "langbot_box")]
    boxwood: Option<PathBuf>,
    /// Keep LangBot's data directory and the daemon's state for inspection
    #[arg(long)]
    keep: bool,
}

/// Each has a `requirements-VERSION.txt` beside the driver.
#[derive(Clone, Copy)]
struct LangBot {
    version: &'static str,
    /// The wire format between LangBot and its runtime.
    wire_format: &'static str,
}

const LANGBOTS: [LangBot; 2] = [
    LangBot {
        version: "4.10.1",
        wire_format: "v0_4",
    },
    LangBot {
        version: "4.11.2",
        wire_format: "v0_7",
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let boxwood = match (&args.boxwood, args.langbot_box) {
        (Some(program), _) => Some(std::path::absolute(program)?),
        (None, true) => None,
        (None, false) => Some(build_boxwood()?),
    };
    let chosen = LANGBOTS.into_iter().filter(|langbot| {
        args.langbot.is_empty() || args.langbot.iter().any(|name| name == langbot.version)
    });
    for langbot in chosen {
        try_one(langbot, boxwood.as_deref(), args.keep)
            .with_context(|| format!("LangBot {}", langbot.version))?;
    }
    Ok(())
}

/// One LangBot from a fresh data directory; with LangBot Box if there is no Boxwood.
fn try_one(langbot: LangBot, boxwood: Option<&Path>, keep: bool) -> Result<()> {
    let LangBot {
        version,
        wire_format,
    } = langbot;
    let driver = workspace_root().join("tests/langbot/e2e");
    let directory = target_dir().join("langbot");
    let python = venv::ensure(
        &directory.join(format!("venv-langbot-{version}")),
        &driver.join(format!("requirements-{version}.txt")),
    )?;
    let logs = directory.join(format!("e2e-{version}"));
    println!("LangBot {version}, logs in {}", logs.display());

    let mut command = Command::new(&python);
    command
        .arg(driver.join("run.py"))
        .args(["--wire-format", wire_format])
        .arg("--logs")
        .arg(&logs)
        // Without compiled files in the source tree.
        .env("PYTHONDONTWRITEBYTECODE", "1");
    match boxwood {
        Some(program) => command.arg("--boxwood").arg(program),
        None => command.arg("--langbot-box-python").arg(&python),
    };
    if keep {
        command.arg("--keep");
    }
    check(&mut command)
}
