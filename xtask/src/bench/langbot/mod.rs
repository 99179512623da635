//! LangBot's published client with Boxwood and with LangBot Box's own runtime.

mod docker;
mod sides;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::baseline::langbot_box;
use super::measure::sample::Samples;
use super::measure::table::{Measured, Row, micros, time_text};
use super::{Effort, progress};
use crate::run::workspace_root;
use sides::{Side, Sides};

/// Every row's name starts like this; alone it means all of them.
pub(super) const PREFIX: &str = "langbot";

/// The text above the table.
pub(super) const ABOUT: &str = "\
The same requests through the client that LangBot ships (`langbot-plugin` 0.4.2, Python), on Boxwood and \
on LangBot Box's own runtime of that package, with its nsjail and its docker backend. Ours runs natively, as it \
does by default, and on the same two engines (one program, one daemon, one image for both). All five run side \
by side and take turns, in an order shuffled anew each round; every session mounts a workspace of the host's, \
as LangBot's do. Times are what the client's caller waits, so each holds the client's own time: the \
`__ping` row is its floor, to be subtracted for the runtimes alone, and the notes say for how \
long the client was computing.";

struct Topic {
    name: &'static str,
    /// What the client script calls it.
    script: &'static str,
    /// In this order: on native, on nsjail, on docker.
    what: [&'static str; 3],
    against: &'static [Pair],
    note: &'static str,
}

/// Ours and theirs.
type Pair = (Side, Side);

const PAIRS: [Pair; 4] = [
    (Side::Ours, Side::Nsjail),
    (Side::Ours, Side::Docker),
    (Side::OursOnNsjail, Side::Nsjail),
    (Side::OursOnDocker, Side::Docker),
];

const TOPICS: [Topic; 5] = [
    Topic {
        name: "langbot-ping",
        script: "ping",
        what: ["`__ping`, the floor of the client itself"; 3],
        // No backend takes part in it.
        against: &[(Side::Ours, Side::Nsjail)],
        note: "",
    },
    Topic {
        name: "langbot-exec",
        script: "exec",
        what: [
            "warm exec of `true`",
            "warm exec of `true`, ours on nsjail",
            "warm exec of `true`, ours on docker",
        ],
        against: &PAIRS,
        note: "LangBot Box's nsjail backend starts a new jail for each exec, with resource limits by rlimit \
               where the host has no cgroup v2; its docker backend runs `docker inspect` and `docker exec`",
    },
    Topic {
        name: "langbot-create",
        script: "create",
        what: [
            "create + first exec + delete, 60 ms apart",
            "create + first exec + delete, 60 ms apart, ours on nsjail",
            "create + first exec + delete, 60 ms apart, ours on docker",
        ],
        against: &PAIRS,
        note: "for LangBot Box's nsjail backend a session is a directory, and no process until the exec",
    },
    Topic {
        name: "langbot-relay",
        script: "relay",
        what: [
            "relay round trip, one line through `cat`",
            "relay round trip, one line through `cat`, ours on nsjail",
            "relay round trip, one line through `cat`, ours on docker",
        ],
        against: &PAIRS,
        note: "",
    },
    Topic {
        name: "langbot-at-once",
        script: "at-once",
        what: [
            "32 sessions, `true` in all at once, until the last answer",
            "32 sessions, `true` in all at once, until the last answer, ours on nsjail",
            "32 sessions, `true` in all at once, until the last answer, ours on docker",
        ],
        against: &PAIRS,
        note: "one connection, 32 requests in flight",
    },
];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

/// The rows whose names `wanted` accepts.
pub(super) fn rows(binary: &Path, effort: Effort, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let topics: Vec<_> = TOPICS.iter().filter(|topic| wanted(topic.name)).collect();
    if topics.is_empty() {
        return Vec::new();
    }
    let sides = progress("langbot, start of the sides", || Sides::start(binary));
    let names: Vec<_> = topics.iter().map(|topic| topic.name).collect();
    let results = progress(&names.join(", "), || drive(&sides, &topics, effort))
        .map_err(|error| format!("{error:#}"));
    let mut rows = Vec::new();
    for topic in topics {
        // Once for the topic: it says the same about each of its rows.
        let mut note = note(topic, results.as_ref().ok());
        for (ours, theirs) in topic.against {
            let result = results
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|results| compare(&sides, results, topic, (*ours, *theirs)))
                .unwrap_or_else(|why| Measured::Unknown { why });
            rows.push(Row {
                what: match ours {
                    Side::OursOnNsjail => topic.what[1],
                    Side::OursOnDocker => topic.what[2],
                    _ => topic.what[0],
                },
                against: match theirs {
                    Side::Docker => "LangBot Box with docker",
                    _ if topic.against.len() == 1 => "LangBot Box's runtime",
                    _ => "LangBot Box with nsjail",
                },
                at_most: Some(1.0),
                result,
                note: std::mem::take(&mut note),
            });
        }
    }
    rows
}

/// Per side and topic, what the script measured or why it could not.
type Results = BTreeMap<String, BTreeMap<String, Outcome>>;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Times(Times),
    Error(String),
}

/// In seconds.
#[derive(Deserialize)]
struct Times {
    /// What the client's caller waits.
    whole: Vec<f64>,
    /// How much of that the client's process was computing.
    client: Vec<f64>,
}

fn drive(sides: &Sides, topics: &[&Topic], effort: Effort) -> Result<Results> {
    let directory = tempfile::tempdir()?;
    // Killed with this process: LangBot Box's runtime does not stop while the client is connected.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL"])
        .arg(langbot_box::programs()?.join("python"))
        .arg(workspace_root().join("tests/langbot/bench/client.py"))
        // The client keeps files where it runs, and the workspaces are made there.
        .current_dir(directory.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    for side in Side::ALL {
        if let Ok(address) = sides.address(side) {
            command.args(["--side", &format!("{}={address}", side.name())]);
        }
    }
    for topic in topics {
        command.args(["--row", topic.script]);
    }
    if matches!(effort, Effort::Quick) {
        command.args(["--divisor", "10"]);
    }
    let output = command
        .output()
        .context("LangBot's client could not be started")?;
    ensure!(
        output.status.success(),
        "LangBot's client failed: {}",
        output.status
    );
    serde_json::from_slice(&output.stdout).context("the client's results could not be read")
}

fn compare(
    sides: &Sides,
    results: &Results,
    topic: &Topic,
    (ours, theirs): Pair,
) -> Result<Measured, String> {
    for side in [ours, theirs] {
        sides
            .address(side)
            .map_err(|why| format!("{} does not run here: {why}", side.name()))?;
    }
    Ok(Measured::times(
        &samples(&times(results, topic, ours)?.whole),
        &samples(&times(results, topic, theirs)?.whole),
    ))
}

fn times<'a>(results: &'a Results, topic: &Topic, side: Side) -> Result<&'a Times, String> {
    let outcome = results
        .get(side.name())
        .and_then(|rows| rows.get(topic.script));
    match outcome {
        Some(Outcome::Times(times)) => Ok(times),
        Some(Outcome::Error(why)) => Err(format!("{}: {why}", side.name())),
        None => Err(format!("{}: the client reported no result", side.name())),
    }
}

fn samples(seconds: &[f64]) -> Samples {
    let times = seconds
        .iter()
        .map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
    times.collect::<Vec<_>>().into()
}

/// What a reader must know to judge a topic's rows.
fn note(topic: &Topic, results: Option<&Results>) -> String {
    let client = results
        .and_then(|results| times(results, topic, Side::Ours).ok())
        .map(|times| {
            let median = time_text(micros(samples(&times.client).median()));
            format!("of our median the client itself computes for {median}")
        });
    let parts: Vec<_> = [Some(topic.note.to_owned()), client]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = r#"{
        "boxwood": {"exec": {"times": {"whole": [0.001, 0.002, 0.003], "client": [0, 0.0004, 1]}}},
        "nsjail": {"exec": {"times": {"whole": [0.010], "client": [0.001]}}},
        "docker": {"exec": {"error": "BoxError: no such image"}}
    }"#;

    fn exec() -> &'static Topic {
        &TOPICS[1]
    }

    #[test]
    fn a_side_that_failed_says_so_in_its_row() {
        let results: Results = serde_json::from_str(RESULTS).expect("the script's form");
        let ours = times(&results, exec(), Side::Ours).expect("measured");
        assert_eq!(samples(&ours.whole).median(), Duration::from_millis(2));
        let Err(why) = times(&results, exec(), Side::Docker) else {
            panic!("docker failed");
        };
        assert_eq!(why, "docker: BoxError: no such image");
    }

    #[test]
    fn a_side_that_does_not_run_here_says_so_in_its_row() {
        let results: Results = serde_json::from_str(RESULTS).expect("the script's form");
        let sides = Sides::none_runs("no engine");
        let Err(why) = compare(&sides, &results, exec(), PAIRS[0]) else {
            panic!("nothing runs");
        };
        assert_eq!(why, "boxwood does not run here: no engine");
    }

    #[test]
    fn the_clients_own_share_stands_in_the_note() {
        let results: Results = serde_json::from_str(RESULTS).expect("the script's form");
        let note = note(exec(), Some(&results));
        assert!(
            note.ends_with("the client itself computes for 400 µs"),
            "{note}"
        );
    }

    #[test]
    fn every_row_is_known_by_the_prefix() {
        assert!(names().all(|name| name.starts_with(PREFIX)));
    }
}
