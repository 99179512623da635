//! `cargo xtask`: development tasks of this repository. CI runs the same ones.
#![forbid(unsafe_code)]

mod backends;
mod bench;
mod e2e_langbot;
mod engines;
mod lines;
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
    about = "Development tasks of this repository"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what the tests need and run all tiers, fast ones first
    Test(test::Args),
    /// Run the benchmarks, as ratios against a reference measured in the same run
    Bench(bench::Args),
    /// Run LangBot against Boxwood and drive it like a user (slow)
    E2eLangbot(e2e_langbot::Args),
    /// Run a command with private Docker, Podman, gVisor and nsjail engines
    Engines(engines::Args),
    /// Generate the table of backends from the results of the suites
    Backends(backends::Args),
    /// Check the project's rules that no other tool checks
    Tidy,
    /// Count product, test and comment lines per crate
    Lines(lines::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Test(args) => test::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::E2eLangbot(args) => e2e_langbot::run(&args),
        Verb::Engines(args) => engines::run(&args),
        Verb::Backends(args) => backends::run(&args),
        Verb::Tidy => tidy::run(),
        Verb::Lines(args) => lines::run(&args),
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
