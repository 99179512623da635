//! `boxwood completion`: for the shell.

use std::io::Write as _;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Outcome;

const EXAMPLES: &str = "\
Examples:
  boxwood completion bash > /etc/bash_completion.d/boxwood
  boxwood completion zsh > \"${fpath[1]}/_boxwood\"
  boxwood completion fish > ~/.config/fish/completions/boxwood.fish";

/// Print a completion script for a shell
///
/// The script goes to stdout; put it where your shell looks for completions.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn main(args: &Args) -> Outcome<()> {
    // Rendered first: the generator panics when its writer fails, and a pipe may close early.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "boxwood", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    Ok(stdout.flush()?)
}
