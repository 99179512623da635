//! Fifty servers at once, and what an idle one costs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::super::daemon::Daemon;
use super::super::measure::procfs;
use super::super::measure::table::{Measured, Row};
use super::sides::{Project, host, supergateway};

const MANY: u32 = 50;
/// Time for the work that a process does after its start.
const SETTLE: Duration = Duration::from_secs(3);

pub(super) fn rows(binary: &Path) -> Vec<Row> {
    let mut note = String::new();
    let (all, memory) = match measure(binary, &mut note) {
        Ok(memory) => (Measured::Answer { yes: true }, memory),
        Err(error) => {
            note = format!("{error:#}");
            (Measured::Answer { yes: false }, Measured::unknown(&error))
        }
    };
    vec![
        Row {
            what: "50 servers added at once, all connected",
            against: "–",
            at_most: None,
            result: all,
            note,
        },
        Row {
            what: "idle server, private memory of everything but the server itself",
            against: "one supergateway 4.0.0 without its server",
            at_most: Some(0.05),
            result: memory,
            note: "of ours: what the daemon grew by for each, and its box's first process. It is not nothing, \
                   because the daemon keeps a server's connection, tools and logs and monitors it, and the \
                   first process of its box holds its pipes"
                .to_owned(),
        },
    ]
}

fn measure(binary: &Path, note: &mut String) -> Result<Measured> {
    let project = Project::make()?;
    let daemon = project.daemon(binary)?;
    std::thread::sleep(SETTLE);
    let before = Private::of(&daemon)?;
    let names: Vec<_> = (0..MANY).map(|number| format!("s{number}")).collect();
    let started = Instant::now();
    host(&daemon, &project, &names)?;
    let took = started.elapsed();
    std::thread::sleep(SETTLE);
    let after = Private::of(&daemon)?;
    let each = |before: f64, after: f64| (after - before).max(0.0) / f64::from(MANY);
    let grown = each(before.daemon_kib, after.daemon_kib);
    let boxes = each(before.boxes_kib, after.boxes_kib);
    *note = format!(
        "in {:.1} s; for each the daemon grew by {grown:.0} KiB, its box's first process has {boxes:.0} KiB",
        took.as_secs_f64()
    );
    drop(daemon);

    let gateway = supergateway(&project.script())?;
    std::thread::sleep(SETTLE);
    // It starts a server for each session, and there is none.
    let all = procfs::descendants(&[gateway.pid()])?;
    ensure!(
        all.is_empty(),
        "supergateway has started {} processes",
        all.len()
    );
    let theirs = kib(procfs::memory(gateway.pid())?.private_kib);
    Ok(Measured::kibibytes(grown + boxes, theirs))
}

struct Private {
    daemon_kib: f64,
    /// Of every process below the daemon but the servers.
    boxes_kib: f64,
}

impl Private {
    fn of(daemon: &Daemon) -> Result<Self> {
        let ours = procfs::descendants(&[daemon.pid()])?
            .into_iter()
            .filter(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name.starts_with("boxwood"))
            })
            .collect();
        Ok(Self {
            daemon_kib: kib(procfs::memory(daemon.pid())?.private_kib),
            boxes_kib: kib(procfs::memory_of(&ours).private_kib),
        })
    }
}

/// Exact for anything that fits into a machine.
fn kib(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
