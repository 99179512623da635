//! The same box on every engine, and beside it the engines' own commands.

mod commands;
mod sides;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use super::table::Row;
use super::turns::{Times, Turns};
use super::{Effort, progress};
use sides::{Backend, Side, Sides};

/// Prefix of the names of all rows; alone it selects all of them.
pub(super) const PREFIX: &str = "backends";

const EXEC: &str = "backends-exec";
pub(super) const NAMES: [&str; 1] = [EXEC];

/// The text above the table.
pub(super) const ABOUT: &str = "\
One `boxwood serve --backend …` for each backend, all of them beside real engines started for this run, \
asked by the same bare TCP client. Docker and Podman run a small Debian, native and nsjail the host's own \
system. In each round the engines' own `exec` commands have one turn, then, after a pause in which the \
engines finish, everything else has ten, in an order shuffled anew for each. LangBot Box's runtime on the same \
engines is in the last table, because only its own client speaks to it.";

/// An engine's daemon is busy for a while after its command has returned.
const ENGINES_FINISH: Duration = Duration::from_millis(100);
/// What is quick has this many turns for one of what is slow.
const TURNS: usize = 10;

struct Comparison {
    what: &'static str,
    ours: Backend,
    against: &'static str,
    theirs: Side,
    at_most: f64,
}

const NATIVE: &str = "the same on native";
const DOCKER_EXEC: &str = "`docker exec` CLI";
const PODMAN_EXEC: &str = "`podman exec` CLI";

const ON_NATIVE: &str = "warm exec of `true` over HTTP, native";
const ON_DOCKER: &str = "warm exec of `true` over HTTP, docker";
const ON_PODMAN: &str = "warm exec of `true` over HTTP, podman";
const ON_NSJAIL: &str = "warm exec of `true` over HTTP, nsjail";

const EXECS: [Comparison; 9] = [
    exec(Backend::Docker, Side::Ours(Backend::Native), 2.0),
    exec(Backend::Podman, Side::Ours(Backend::Native), 2.0),
    exec(Backend::Nsjail, Side::Ours(Backend::Native), 2.0),
    exec(Backend::Native, Side::DockerCommand, 1.0 / 40.0),
    exec(Backend::Docker, Side::DockerCommand, 1.0 / 40.0),
    exec(Backend::Podman, Side::DockerCommand, 1.0 / 40.0),
    exec(Backend::Nsjail, Side::DockerCommand, 1.0 / 40.0),
    exec(Backend::Native, Side::PodmanCommand, 1.0 / 40.0),
    exec(Backend::Podman, Side::PodmanCommand, 1.0 / 40.0),
];

const fn exec(ours: Backend, theirs: Side, at_most: f64) -> Comparison {
    Comparison {
        what: match ours {
            Backend::Native => ON_NATIVE,
            Backend::Docker => ON_DOCKER,
            Backend::Podman => ON_PODMAN,
            Backend::Nsjail => ON_NSJAIL,
        },
        ours,
        against: match theirs {
            Side::Ours(_) => NATIVE,
            Side::DockerCommand => DOCKER_EXEC,
            Side::PodmanCommand => PODMAN_EXEC,
        },
        theirs,
        at_most,
    }
}

/// Measured if `wanted` returns true for the name.
pub(super) fn rows(binary: &Path, effort: Effort, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    if !wanted(EXEC) {
        return Vec::new();
    }
    let sides = progress("backends, start of the engines", || Sides::start(binary));
    let times = progress(EXEC, || execs(&sides, effort));
    let row = |row: &Comparison| Row {
        what: row.what,
        against: row.against,
        at_most: Some(row.at_most),
        result: times.compare(Side::Ours(row.ours), row.theirs),
        note: String::new(),
    };
    EXECS.iter().map(row).collect()
}

fn execs(sides: &Sides, effort: Effort) -> Times<Side> {
    let slow = [Side::DockerCommand, Side::PodmanCommand];
    let mut turns = Turns::new();
    for side in ours().chain(slow) {
        turns.join(side, sides.exec(side));
    }
    for _ in 0..effort.of(50) {
        turns.take(|side| slow.contains(&side), Duration::ZERO);
        std::thread::sleep(ENGINES_FINISH);
        for _ in 0..TURNS {
            turns.take(|side| !slow.contains(&side), Duration::ZERO);
        }
    }
    turns.finish()
}

fn ours() -> impl Iterator<Item = Side> {
    Backend::value_variants().iter().copied().map(Side::Ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_known_by_the_prefix() {
        assert!(NAMES.iter().all(|name| name.starts_with(PREFIX)));
    }

    #[test]
    fn every_engine_is_held_to_native_and_to_docker_exec() {
        let promised = |ours, theirs, at_most: f64| {
            EXECS.iter().any(|row| {
                let same = (row.at_most - at_most).abs() < f64::EPSILON;
                row.ours == ours && row.theirs == theirs && same
            })
        };
        for backend in [Backend::Docker, Backend::Podman, Backend::Nsjail] {
            assert!(promised(backend, Side::Ours(Backend::Native), 2.0));
            assert!(promised(backend, Side::DockerCommand, 0.025));
        }
    }
}
