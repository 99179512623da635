//! The verbs of this repository.
//!
//! Comes in: `cargo xtask VERB`. Goes out: an exit status, and words for the person watching.
//! Never here: product code. CI calls the same verbs.
#![forbid(unsafe_code)]

mod backends;
mod bench;
mod e2e_langbot;
mod engines;
mod node_modules;
mod run;
mod test;
mod tidy;
mod venv;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The verbs of this repository"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what the tests need and run every tier, quick ones first
    Test(test::Args),
    /// Measure what we promise, as ratios against something real in the same run
    Bench(bench::Args),
    /// Boot a real LangBot against Boxwood and use it as people do (slow)
    E2eLangbot(e2e_langbot::Args),
    /// Start real engines (Docker, Podman, gVisor, nsjail) of our own beside a command
    Engines(engines::Args),
    /// Make the table of backends from what the suites saw
    Backends(backends::Args),
    /// The house rules that no other tool checks
    Tidy,
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Test(args) => test::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::E2eLangbot(args) => e2e_langbot::run(&args),
        Verb::Engines(args) => engines::run(&args),
        Verb::Backends(args) => backends::run(&args),
        Verb::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Without the backtrace: what failed is a command, and the error names it.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
