//! How the suites in Python are run.
//!
//! Comes in: an environment's Python, and where the tests are. Goes out: pytest, ready to be called. Never
//! here: which tests there are.

use std::path::Path;
use std::process::Command;

use super::is_ci;

pub(super) fn pytest(python: &Path, tests: &Path, program: &Path) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-m", "pytest", "--quiet", "--durations=5"])
        .current_dir(tests)
        .env("BOXWOOD_BIN", program)
        // What Python compiles would lie about in the source tree.
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if is_ci() {
        // As nextest's profile `ci`: once more, and named at the end (`-rR`).
        command.args(["--reruns", "1", "--reruns-delay", "1", "-rR"]);
    }
    command
}
