//! LangBot's published clients on a real daemon.
//!
//! Runs the suites in `tests/langbot`, each in an environment with the client version that it tests.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::pytest::pytest;
use crate::run::{build_boxwood, check, target_dir, workspace_root};
use crate::venv;

/// A folder of tests, and the version of `langbot-plugin` that drives them.
struct Suite {
    folder: &'static str,
    client: &'static str,
}

const SUITES: &[Suite] = &[
    Suite {
        folder: "v0_4",
        client: "0.4.2",
    },
    Suite {
        folder: "v0_7",
        client: "0.7.18",
    },
];

pub(super) fn run() -> Result<()> {
    let program = build_boxwood()?;
    for suite in SUITES {
        println!("langbot-plugin {}: {}", suite.client, suite.folder);
        check(
            pytest(&suite.python()?, &tests().join(suite.folder), &program)
                // The suites test Boxwood here, and never the runtime that LangBot ships.
                .env_remove("BOXWOOD_TEST_RUNTIME"),
        )
        .with_context(|| format!("the suite of langbot-plugin {} failed", suite.client))?;
    }
    Ok(())
}

impl Suite {
    /// The Python with the suite's client, installed if it is missing.
    fn python(&self) -> Result<PathBuf> {
        venv::ensure(
            &target_dir()
                .join("langbot")
                .join(format!("venv-{}", self.client)),
            &tests().join(format!("requirements-{}.txt", self.client)),
        )
    }
}

fn tests() -> PathBuf {
    workspace_root().join("tests/langbot")
}
