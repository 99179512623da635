//! LangBot's own published clients on a real daemon.
//!
//! Comes in: the suites under `tests/langbot`. Goes out: success when pytest passed in each, in an
//! environment with exactly the client that the suite is about. Never here: what is asked of the
//! daemon; the suites say that in the clients' language.

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
        folder: "june",
        client: "0.4.2",
    },
    Suite {
        folder: "today",
        client: "0.7.18",
    },
];

pub(super) fn run() -> Result<()> {
    let program = build_boxwood()?;

    let tests = workspace_root().join("tests/langbot");
    for suite in SUITES {
        println!("langbot-plugin {}: {}", suite.client, suite.folder);
        let python = venv::ensure(
            &target_dir()
                .join("langbot")
                .join(format!("venv-{}", suite.client)),
            &tests.join(format!("requirements-{}.txt", suite.client)),
        )?;
        check(
            pytest(&python, &tests.join(suite.folder), &program)
                // A green run is one on Boxwood.
                .env_remove("BOXWOOD_TEST_RUNTIME"),
        )
        .with_context(|| format!("LangBot's client {} is not served", suite.client))?;
    }
    Ok(())
}
