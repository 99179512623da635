//! Boxes on every backend, compared with the engines' own commands.

mod commands;
mod sides;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use super::create::{APART, Phases};
use super::measure::table::Row;
use super::measure::turns::{Times, Turns};
use super::{Effort, progress};
use sides::{Backend, Side, Sides};

/// Every row's name starts like this; alone it means all of them.
pub(super) const PREFIX: &str = "backends";

const EXEC: &str = "backends-exec";
const CREATE: &str = "backends-create";
pub(super) const NAMES: [&str; 2] = [EXEC, CREATE];

/// The text above the table.
pub(super) const ABOUT: &str = "\
One `boxwood serve --backend …` for each backend, all of them beside real engines started for this run, \
asked by the same bare TCP client. Docker and Podman run a small Debian, native and nsjail the host's own \
system. In each round the engines' own `exec` commands have one turn, then, after a pause in which the \
engines finish, everything else has ten, in an order shuffled anew for each. LangBot Box's runtime on the same \
engines is in the last table, because only its own client speaks to it.";

/// An engine's daemon is busy for a while after its command has returned.
const ENGINES_FINISH: Duration = Duration::from_millis(100);
/// Quick sides have this many turns for each turn of a slow one.
const TURNS: usize = 10;

struct Comparison {
    what: &'static str,
    ours: Backend,
    against: &'static str,
    theirs: Side,
    at_most: Option<f64>,
}

const NATIVE: &str = "the same on native";
const FORK: &str = "plain fork+exec of `sh -c true`";
const DOCKER_EXEC: &str = "`docker exec` CLI";
const PODMAN_EXEC: &str = "`podman exec` CLI";

const ON_NATIVE: &str = "warm exec of `true` over HTTP, native";
const ON_DOCKER: &str = "warm exec of `true` over HTTP, docker";
const ON_PODMAN: &str = "warm exec of `true` over HTTP, podman";
const ON_NSJAIL: &str = "warm exec of `true` over HTTP, nsjail";

const EXECS: [Comparison; 13] = [
    exec(Backend::Docker, Side::Ours(Backend::Native), Some(2.0)),
    exec(Backend::Podman, Side::Ours(Backend::Native), Some(2.0)),
    exec(Backend::Nsjail, Side::Ours(Backend::Native), Some(2.0)),
    exec(Backend::Native, Side::DockerCommand, Some(1.0 / 40.0)),
    exec(Backend::Docker, Side::DockerCommand, Some(1.0 / 40.0)),
    exec(Backend::Podman, Side::DockerCommand, Some(1.0 / 40.0)),
    exec(Backend::Nsjail, Side::DockerCommand, Some(1.0 / 40.0)),
    exec(Backend::Native, Side::PodmanCommand, Some(1.0 / 40.0)),
    exec(Backend::Podman, Side::PodmanCommand, Some(1.0 / 40.0)),
    // The limit for this comparison is in the first table, from a loop without other sides.
    exec(Backend::Native, Side::Fork, None),
    exec(Backend::Docker, Side::Fork, None),
    exec(Backend::Podman, Side::Fork, None),
    exec(Backend::Nsjail, Side::Fork, None),
];

const fn exec(ours: Backend, theirs: Side, at_most: Option<f64>) -> Comparison {
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
            Side::Fork => FORK,
            Side::DockerCommand => DOCKER_EXEC,
            Side::PodmanCommand => PODMAN_EXEC,
            Side::NsjailCommand => NSJAIL_RUN,
        },
        theirs,
        at_most,
    }
}

const NSJAIL_RUN: &str = "`nsjail --mode o … sh -c true`";

const CREATES: [Comparison; 4] = [
    Comparison {
        what: "create + first exec + delete, 60 ms apart, native",
        ours: Backend::Native,
        against: NSJAIL_RUN,
        theirs: Side::NsjailCommand,
        at_most: None,
    },
    Comparison {
        what: "create + first exec + delete, 60 ms apart, docker",
        ours: Backend::Docker,
        against: "`docker run --rm IMAGE sh -c true`",
        theirs: Side::DockerCommand,
        at_most: None,
    },
    Comparison {
        what: "create + first exec + delete, 60 ms apart, podman",
        ours: Backend::Podman,
        against: "`podman run --rm IMAGE sh -c true`",
        theirs: Side::PodmanCommand,
        at_most: None,
    },
    Comparison {
        what: "create + first exec + delete, 60 ms apart, nsjail",
        ours: Backend::Nsjail,
        against: NSJAIL_RUN,
        theirs: Side::NsjailCommand,
        at_most: None,
    },
];

/// The rows whose names `wanted` accepts.
pub(super) fn rows(binary: &Path, effort: Effort, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    if !NAMES.into_iter().any(&wanted) {
        return rows;
    }
    let sides = progress("backends, start of the engines", || Sides::start(binary));
    if wanted(EXEC) {
        let times = progress(EXEC, || execs(&sides, effort));
        rows.extend(EXECS.iter().map(|row| compare(row, &times, String::new())));
    }
    if wanted(CREATE) {
        let (times, phases) = progress(CREATE, || creates(&sides, effort));
        for row in &CREATES {
            let note = phases
                .iter()
                .find(|(backend, _)| *backend == row.ours)
                .map(|(_, phases)| format!("medians: {}", phases.text()));
            rows.push(compare(row, &times, note.unwrap_or_default()));
        }
    }
    rows
}

fn compare(row: &Comparison, times: &Times<Side>, note: String) -> Row {
    Row {
        what: row.what,
        against: row.against,
        at_most: row.at_most,
        result: times.compare(Side::Ours(row.ours), row.theirs),
        note,
    }
}

fn execs(sides: &Sides, effort: Effort) -> Times<Side> {
    let slow = [Side::DockerCommand, Side::PodmanCommand];
    let mut turns = Turns::new();
    for side in ours().chain([Side::Fork]).chain(slow) {
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

fn creates(sides: &Sides, effort: Effort) -> (Times<Side>, Vec<(Backend, Phases)>) {
    let mut phases: Vec<_> = ours()
        .chain(Side::COMMANDS)
        .map(|side| (side, Phases::default()))
        .collect();
    let mut turns = Turns::new();
    for (side, phases) in &mut phases {
        turns.join(*side, sides.create(*side, phases));
    }
    for _ in 0..effort.of(30) {
        turns.take(|_| true, APART);
    }
    let times = turns.finish();
    let phases = phases.into_iter().filter_map(|(side, phases)| match side {
        Side::Ours(backend) => Some((backend, phases)),
        _ => None,
    });
    (times, phases.collect())
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
        let promised = |ours, theirs, at_most| {
            EXECS
                .iter()
                .any(|row| row.ours == ours && row.theirs == theirs && row.at_most == Some(at_most))
        };
        for backend in [Backend::Docker, Backend::Podman, Backend::Nsjail] {
            assert!(promised(backend, Side::Ours(Backend::Native), 2.0));
            assert!(promised(backend, Side::DockerCommand, 0.025));
        }
    }
}
