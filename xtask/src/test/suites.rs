//! Which tests belong to which tier, as nextest filter expressions.
//!
//! All tiers select the whole workspace with all features, so that they share one build; only the filter differs. For
//! nextest a filter that matches nothing is an error, so a renamed suite is noticed.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;

use super::{form, is_ci};
use crate::backends;
use crate::engines::Variables;
use crate::run::{cargo, check};

/// Tests that start real boxes: the conformance and escape suites and what the native backend
/// adds of its own.
pub(super) const BOXES: &str = "package(boxwood-backend-native) & kind(test)";

/// The same for an ordinary user, and MCP servers in such boxes.
pub(super) const ROOTLESS: &str = "(package(boxwood-backend-native) & kind(test)) \
     | (package(boxwood) & binary(it) & test(/^mcp::hosted::/))";
/// The programs with those tests in them.
pub(super) const ROOTLESS_PROGRAMS: &str =
    "(package(boxwood-backend-native) & kind(test)) | (package(boxwood) & binary(it))";

/// Tests that start boxes in an engine, which variables select.
pub(super) const CONTAINER: &str = "package(boxwood-backend-container) & kind(test)";
pub(super) const NSJAIL: &str = "package(boxwood-backend-nsjail) & kind(test)";

/// Tests that start the real daemon or the real command.
pub(super) const END_TO_END: &str =
    "package(boxwood) & kind(test) & not binary(engine) & not binary(storm)";

/// Tests that kill daemons repeatedly. An ordinary user can neither mount a small disk nor set clocks.
pub(super) const STORM: &str = "package(boxwood) & binary(storm)";
pub(super) const STORM_ROOTLESS: &str =
    "package(boxwood) & binary(storm) & not test(/^(full_disk|clock)::/)";

/// The same with engines, which variables select.
const ON_ENGINES: &str = "package(boxwood) & binary(engine)";

/// All tests of one engine: the suites of its backend, and the tests of the daemon on it, in modules with the names of
/// engines.
pub(super) fn engine_filter(backend: &str, modules: &[&str]) -> String {
    let modules: Vec<String> = modules
        .iter()
        .map(|module| format!("test(/^{module}::/)"))
        .collect();
    format!("({backend}) | ({ON_ENGINES} & ({}))", modules.join(" | "))
}

/// Everything else.
pub(super) fn unit_filter() -> String {
    format!(
        "not ({BOXES}) & not ({CONTAINER}) & not ({NSJAIL}) & not ({END_TO_END}) & not ({ON_ENGINES}) \
         & not ({STORM})"
    )
}

/// Directory for the results of a conformance suite.
pub(super) const MATRIX: &str = "BOXWOOD_TEST_MATRIX";

pub(super) fn run(filter: &str) -> Result<()> {
    run_with(filter, &Variables::new())
}

/// Builds all tests without running them.
pub(super) fn build() -> Result<()> {
    check(nextest("run").arg("--no-run"))
}

static ONLY_CRATES: OnceLock<BTreeSet<String>> = OnceLock::new();

/// From now on only tests of these crates run.
pub(super) fn only_crates(crates: BTreeSet<String>) {
    // Called once, before any tier.
    let _ = ONLY_CRATES.set(crates);
}

pub(super) fn run_with(filter: &str, variables: &Variables) -> Result<()> {
    let mut run = nextest("run");
    if let Some(crates) = ONLY_CRATES.get() {
        let crates = crates.iter().map(|name| format!(" | package(={name})"));
        let filter = format!("({filter}) & (none(){})", crates.collect::<String>());
        run.args(["-E", &filter, "--no-tests", "pass"]);
    } else {
        run.args(["-E", filter]);
    }
    run.args(["--profile", profile()])
        .env(MATRIX, backends::matrix_dir())
        .envs(variables);
    check(form::pass_on(&mut run))
}

/// `cargo nextest VERB` on the one build that all tiers share.
pub(super) fn nextest(verb: &str) -> Command {
    let mut command = cargo();
    command.args(["nextest", verb, "--workspace", "--all-features"]);
    command
}

fn profile() -> &'static str {
    if is_ci() { "ci" } else { "default" }
}
