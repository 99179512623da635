//! The pytest command for the Python suites.

use std::path::Path;
use std::process::Command;

use super::form;

/// Most tests wait for a daemon or a box, so there are more workers than a small machine has processors. The
/// number is fixed: what runs at the same time must not depend on the machine.
const WORKERS: &str = "4";

pub(super) fn pytest(python: &Path, tests: &Path, program: &Path) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-m", "pytest", "--quiet", "--durations=10"])
        // Each suite's `conftest.py` puts the tests that share a daemon into one group. The groups start in the
        // order of collection, the longest first, and not by their number of tests.
        .args(["--numprocesses", WORKERS, "--dist", "loadscope"])
        .arg("--no-loadscope-reorder")
        .current_dir(tests)
        .env("BOXWOOD_BIN", program)
        // Python would write compiled files into the source tree.
        .env("PYTHONDONTWRITEBYTECODE", "1");
    form::pass_on(&mut command);
    command
}
