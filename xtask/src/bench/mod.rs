//! `cargo xtask bench`: measures Boxwood in comparison with other programs.
//!
//! Both sides take turns within one loop, so that other load slows both. A row that cannot be measured has the reason
//! instead.

mod backends;
mod baseline;
mod clients;
mod create;
mod daemon;
mod exec;
mod hosting;
mod idle;
mod langbot;
mod load;
mod measure;
mod relay;
mod search;
mod warm;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use daemon::Daemon;
use measure::table::{Machine, Report, Row, duration_text};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A tenth of the iterations
    #[arg(long)]
    quick: bool,
    /// How to print the table
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Also write all tables to this file; cannot be used with `--only`
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    out: Option<PathBuf>,
    /// Measure this `boxwood` instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Measure these only: exec, apart, exec-python, create, create-runc, create-crun, warm, idle, frozen, many,
    /// relay, relay-pipe, search, search-ripgrep, daemon; backends, or of these backends-exec, backends-create; load,
    /// or of these load-output, load-forks, load-connections, load-crowd, load-adoption; hosting, or of these
    /// hosting-call, hosting-many; langbot, or of these langbot-ping, langbot-exec, langbot-create, langbot-relay,
    /// langbot-at-once
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// How often to repeat.
#[derive(Clone, Copy)]
enum Effort {
    Full,
    Quick,
}

impl Effort {
    fn of(self, iterations: usize) -> usize {
        match self {
            Self::Full => iterations,
            Self::Quick => (iterations / 10).max(10),
        }
    }
}

/// The rows of the first table. Those of one group come from one measurement.
const GROUPS: [&[&str]; 11] = [
    &["exec"],
    &["apart"],
    &["exec-python"],
    &["create", "create-runc", "create-crun"],
    &["warm"],
    &["idle"],
    &["frozen"],
    &["many"],
    &["relay", "relay-pipe"],
    &["search", "search-ripgrep"],
    &["daemon"],
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let known: Vec<_> = GROUPS
        .into_iter()
        .flatten()
        .copied()
        .chain([
            backends::PREFIX,
            load::PREFIX,
            hosting::PREFIX,
            langbot::PREFIX,
        ])
        .chain(backends::NAMES)
        .chain(load::NAMES)
        .chain(hosting::NAMES)
        .chain(langbot::names())
        .collect();
    for name in &args.only {
        anyhow::ensure!(
            known.contains(&name.as_str()),
            "there is no row `{name}`; the rows are {}",
            known.join(", ")
        );
    }
    let effort = if args.quick {
        Effort::Quick
    } else {
        Effort::Full
    };
    baseline::prepare();
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => daemon::build()?,
    };
    let started = Instant::now();
    let mut machine = Machine::read_current();
    let rows = measure(&binary, effort, &args.only)?;
    let group = |prefix| {
        move |name: &str| wanted(&args.only, name) || args.only.iter().any(|only| only == prefix)
    };
    let backends = backends::rows(&binary, effort, group(backends::PREFIX));
    let load = load::rows(&binary, effort, group(load::PREFIX));
    let hosting = hosting::rows(&binary, effort, group(hosting::PREFIX));
    let langbot = langbot::rows(&binary, effort, group(langbot::PREFIX));
    machine.record_load_after();
    let report = Report {
        machine,
        duration_sec: started.elapsed().as_secs(),
        rows,
        backends,
        load,
        hosting,
        langbot,
    };
    match args.output {
        Format::Table => print!("{}", report.to_markdown()),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    if let Some(path) = &args.out {
        write(path, &report)?;
    }
    eprintln!("total: {}", duration_text(report.duration_sec));
    Ok(())
}

fn measure(binary: &Path, effort: Effort, only: &[String]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let groups: Vec<Vec<_>> = GROUPS
        .into_iter()
        .map(|names| names.iter().copied().filter(|name| wanted(only, name)))
        .map(Iterator::collect)
        .collect();
    if groups.iter().all(Vec::is_empty) {
        return Ok(rows);
    }
    let daemon = Daemon::start(binary)?;
    for names in groups.iter().filter(|names| !names.is_empty()) {
        rows.extend(progress(&names.join(", "), || match names[0] {
            "exec" => vec![exec::against_fork(&daemon, effort)],
            "apart" => vec![exec::against_fork_apart(&daemon, effort)],
            "exec-python" => vec![exec::python_against_fork(&daemon, effort)],
            "create" | "create-runc" | "create-crun" => create::rows(&daemon, effort, names),
            "relay" | "relay-pipe" => relay::rows(&daemon, effort, names),
            "search" | "search-ripgrep" => search::rows(&daemon, effort, names),
            // These need a daemon that has done nothing yet.
            "warm" => vec![warm::create_against_bwrap(binary, effort)],
            "idle" => vec![idle::box_against_bwrap(binary)],
            "frozen" => vec![warm::frozen_against_awake(binary)],
            "many" => vec![idle::thousand_boxes(binary)],
            _ => vec![idle::daemon_against_langbot_box(binary)],
        }));
    }
    Ok(rows)
}

/// Prints what is measured, and afterwards how long that took.
fn progress<T>(what: &str, work: impl FnOnce() -> T) -> T {
    eprintln!("measuring: {what}");
    let started = Instant::now();
    let value = work();
    let took = duration_text(started.elapsed().as_secs());
    eprintln!("measuring: {what} … {took}");
    value
}

/// An empty list means all rows.
fn wanted(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|only| only == name)
}

fn write(path: &Path, report: &Report) -> Result<()> {
    let text = format!(
        "# Benchmarks\n\nWritten by `cargo xtask bench --out`; do not edit by hand. Each row is one \
         run with ours and theirs taking turns; times are median / 95th percentile. Ratios are what \
         to compare: milliseconds belong to the machine.\n\n{}",
        report.to_markdown()
    );
    fs::write(path, text).with_context(|| format!("`{}` could not be written", path.display()))
}
