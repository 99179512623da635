//! `cargo xtask test`: runs all tests in tiers, quick ones first.
//!
//! Each tier calls the tool that runs its tests.

mod changed;
mod engine;
mod form;
mod langbot;
mod mcp;
pub(crate) mod needs;
mod pytest;
mod readme;
pub(crate) mod rootless;
mod suites;

pub(crate) use mcp::mcp_proxy;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use changed::Affected;

use crate::engines::{Engine, Variables};
use crate::run::{cargo, check, is_root};
use crate::{backends, tidy};

#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Run these tiers only (may be given more than once)
    #[arg(long, value_name = "TIER")]
    only: Vec<String>,
    /// Skip these tiers (may be given more than once)
    #[arg(long, value_name = "TIER")]
    skip: Vec<String>,
    /// Continue after a failed tier; the exit status still reports it
    #[arg(long)]
    keep_going: bool,
    /// Run the long forms as well: more cycles, kills and frames
    #[arg(long)]
    long: bool,
    /// Run only what the changes since a revision can affect
    #[arg(long, value_name = "REVISION", num_args = 0..=1, default_missing_value = "origin/main")]
    changed: Option<String>,
    /// Run the tiers that start boxes three times while every processor is kept busy
    #[arg(long)]
    under_load: bool,
    /// List the tiers and exit
    #[arg(long)]
    list: bool,
}

struct Tier {
    name: &'static str,
    about: &'static str,
    /// Whether `--under-load` runs it.
    starts_boxes: bool,
    run: fn() -> Result<Outcome>,
}

const ROUNDS_UNDER_LOAD: usize = 3;

enum Outcome {
    Passed,
    /// Not possible for this user or on this machine. The reason is in the summary.
    Skipped(String),
}

const TIERS: &[Tier] = &[
    Tier {
        name: "needs",
        about: "install what the other tiers use",
        starts_boxes: false,
        run: || needs::install().map(|()| Outcome::Passed),
    },
    Tier {
        name: "fmt",
        about: "formatting",
        starts_boxes: false,
        run: || passed(cargo().args(["fmt", "--all", "--", "--check"])),
    },
    Tier {
        name: "tidy",
        about: "the project's rules that no other tool checks",
        starts_boxes: false,
        run: || tidy::run().map(|()| Outcome::Passed),
    },
    Tier {
        name: "deny",
        about: "licences, bans and sources of dependencies",
        starts_boxes: false,
        run: || {
            passed(cargo().args([
                "deny",
                "check",
                "--hide-inclusion-graph",
                "licenses",
                "bans",
                "sources",
            ]))
        },
    },
    Tier {
        name: "clippy",
        about: "lints, all targets and features, warnings are errors",
        starts_boxes: false,
        run: || {
            passed(
                cargo()
                    .args(["clippy", "--workspace", "--all-targets", "--all-features"])
                    .args(["--", "-D", "warnings"]),
            )
        },
    },
    Tier {
        name: "unit",
        about: "unit, property, contract and fake-backed tests",
        starts_boxes: false,
        run: || {
            suites::build()?;
            // Some of these tests are sensitive to delays, and building images occupies the processors.
            engine::wait_for_background();
            suites::run(&suites::unit_filter()).map(|()| Outcome::Passed)
        },
    },
    Tier {
        name: "engines",
        about: "create the images for the suites on real engines (once)",
        starts_boxes: false,
        run: engine::prepared,
    },
    Tier {
        name: "boxes",
        about: "conformance and escape suites on real boxes, as the user who runs this",
        starts_boxes: true,
        run: || suites::run(suites::BOXES).map(|()| Outcome::Passed),
    },
    Tier {
        name: "boxes-rootless",
        about: "the same suites as an ordinary user",
        starts_boxes: true,
        run: || {
            if is_root() {
                let (programs, tests) = (suites::ROOTLESS_PROGRAMS, suites::ROOTLESS);
                rootless::run(programs, tests, &Variables::new()).map(|()| Outcome::Passed)
            } else {
                Ok(Outcome::Skipped(
                    "not root: the `boxes` tier has run as an ordinary user; run as root to have both"
                        .into(),
                ))
            }
        },
    },
    Tier {
        name: "docker",
        about: "the suites on a separate Docker",
        starts_boxes: true,
        run: || engine::run(Engine::Docker),
    },
    Tier {
        name: "podman",
        about: "the suites on Podman, as root",
        starts_boxes: true,
        run: || engine::run(Engine::Podman),
    },
    Tier {
        name: "podman-rootless",
        about: "the suites on Podman, as an ordinary user",
        starts_boxes: true,
        run: || engine::run(Engine::PodmanRootless),
    },
    Tier {
        name: "nsjail",
        about: "the suites on nsjail",
        starts_boxes: true,
        run: || engine::run(Engine::Nsjail),
    },
    Tier {
        name: "gvisor",
        about: "the suites on Docker with gVisor's runtime, where it runs",
        starts_boxes: true,
        run: || engine::run(Engine::Gvisor),
    },
    Tier {
        name: "backends",
        about: "the tables in docs/backends.md match the results of the suites",
        starts_boxes: false,
        run: || {
            if is_root() {
                backends::check().map(|()| Outcome::Passed)
            } else {
                Ok(Outcome::Skipped(
                    "not root: the results of some backends are missing; run as root to have all"
                        .into(),
                ))
            }
        },
    },
    Tier {
        name: "e2e",
        about: "the real daemon and the real command",
        starts_boxes: true,
        run: || suites::run(suites::END_TO_END).map(|()| Outcome::Passed),
    },
    Tier {
        name: "storm",
        about: "daemons killed repeatedly (BOXWOOD_STORM_KILLS sets how often)",
        starts_boxes: true,
        run: || {
            let tests = if is_root() {
                suites::STORM
            } else {
                suites::STORM_ROOTLESS
            };
            suites::run(tests).map(|()| Outcome::Passed)
        },
    },
    Tier {
        name: "langbot",
        about: "LangBot's own published clients on the real daemon",
        starts_boxes: true,
        run: || langbot::run().map(|()| Outcome::Passed),
    },
    Tier {
        name: "mcp",
        about: "official MCP clients and the conformance suite on the real daemon",
        starts_boxes: true,
        run: || mcp::run().map(|()| Outcome::Passed),
    },
    Tier {
        name: "docs",
        about: "doc tests, and documentation without a broken link",
        starts_boxes: false,
        run: docs,
    },
    Tier {
        name: "readme",
        about: "the first command of the README, unchanged",
        starts_boxes: false,
        run: || readme::check_first_command().map(|()| Outcome::Passed),
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        for tier in TIERS {
            println!("{:<15} {}", tier.name, tier.about);
        }
        return Ok(());
    }
    for name in args.only.iter().chain(&args.skip) {
        if !TIERS.iter().any(|tier| tier.name == name) {
            bail!("there is no tier `{name}`; `cargo xtask test --list` lists them");
        }
    }
    if args.long || std::env::var_os(form::LONG_VARIABLE).is_some() {
        form::choose_long();
    }
    let mut chosen: Vec<_> = TIERS
        .iter()
        .filter(|tier| args.only.is_empty() || args.only.iter().any(|name| name == tier.name))
        .filter(|tier| !args.skip.iter().any(|name| name == tier.name))
        .collect();
    if let Some(revision) = &args.changed
        && let Affected::Only { tiers, crates } = changed::since(revision)?
    {
        chosen.retain(|tier| tiers.contains(tier.name));
        suites::only_crates(crates);
    }
    if args.under_load {
        chosen.retain(|tier| tier.starts_boxes);
        chosen = chosen.repeat(ROUNDS_UNDER_LOAD);
        // Installing and compiling would only be slower under load.
        needs::install()?;
        suites::build()?;
        if chosen.iter().any(|tier| engine::is_tier(tier.name)) {
            engine::prepared()?;
        }
    }
    let _load = args.under_load.then(form::Load::start).transpose()?;

    let started = Instant::now();
    let mut lines = Vec::new();
    let mut failed = 0_usize;
    for (number, tier) in chosen.iter().enumerate() {
        println!(
            "\n━━ {}/{} {}: {} ━━",
            number + 1,
            chosen.len(),
            tier.name,
            tier.about
        );
        let tier_started = Instant::now();
        // From here on tests mostly wait, and none counts the processes of the whole host.
        if tier.name == "langbot" && chosen.iter().any(|tier| tier.name == "readme") {
            readme::build_in_background();
        }
        let outcome = (tier.run)();
        let took = shown(tier_started.elapsed());
        let line = match outcome {
            Ok(Outcome::Passed) => format!("passed   {:<15} {took}", tier.name),
            Ok(Outcome::Skipped(why)) => format!("skipped  {:<15} {why}", tier.name),
            Err(error) => {
                failed += 1;
                eprintln!("error: {error:#}");
                format!("FAILED   {:<15} {took}", tier.name)
            }
        };
        println!("{line}");
        lines.push(line);
        // Mostly downloads, for some minutes, while the next tiers use the processors.
        if failed == 0 && tier.name == "needs" && chosen.iter().any(|tier| tier.name == "engines") {
            engine::prepare_in_background();
        }
        if failed > 0 && !args.keep_going {
            break;
        }
    }

    readme::end_build();

    println!("\n━━ summary, {} ━━", shown(started.elapsed()));
    for line in &lines {
        println!("{line}");
    }
    let not_reached = chosen.len() - lines.len();
    if not_reached > 0 {
        println!("{not_reached} tiers not reached");
    }
    let passed = lines
        .iter()
        .filter(|line| line.starts_with("passed"))
        .count();
    println!("tiers: {passed} passed, {failed} failed");
    if failed > 0 {
        bail!("{failed} of {} tiers failed", chosen.len());
    }
    Ok(())
}

/// Returns true in CI.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some()
}

fn passed(command: &mut std::process::Command) -> Result<Outcome> {
    check(command).map(|()| Outcome::Passed)
}

fn docs() -> Result<Outcome> {
    check(cargo().args(["test", "--doc", "--workspace", "--all-features", "--quiet"]))?;
    passed(
        cargo()
            .args([
                "doc",
                "--workspace",
                "--all-features",
                "--no-deps",
                "--quiet",
            ])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}
