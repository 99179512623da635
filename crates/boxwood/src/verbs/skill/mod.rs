//! `boxwood skill`: the daemon's skill store. One file per action: its flags, its help, what it does.

mod add;
mod cat;
mod edit;
mod export;
mod files;
mod ls;
mod pack;
mod rm;
mod show;
mod validate;

use boxwood_api::{ErrorCode, SkillWarning};
use boxwood_client::{Client, ClientError};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;

const EXAMPLES: &str = "\
Examples:
  boxwood skill add ./pdf                       A directory with a SKILL.md, into the store
  boxwood skill add skills.zip --all            Everything in an archive
  boxwood skill ls
  boxwood skill show pdf
  boxwood skill edit pdf SKILL.md               In your editor
  boxwood exec build --skill pdf -- ls /workspace/.skills/pdf
  boxwood skill rm pdf

`boxwood skill ACTION --help` has examples for every action.";

/// Manage skills
///
/// A skill is a directory with a `SKILL.md`: instructions for an agent, and the scripts and files they
/// speak of. The daemon keeps skills in its store. A box that is given one with `--skill NAME` has it
/// under `/workspace/.skills/NAME`, read-only.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Ls(ls::Args),
    Show(show::Args),
    Add(add::Args),
    Rm(rm::Args),
    Files(files::Args),
    Cat(cat::Args),
    Edit(edit::Args),
    Export(export::Args),
    Validate(validate::Args),
}

impl Args {
    /// What is on this machine needs no daemon.
    pub(crate) fn is_local(&self) -> bool {
        matches!(&self.action, Action::Validate(args) if args.is_local())
    }
}

/// For an action that needs no daemon.
pub(crate) fn here(args: &Args, output: Output) -> Outcome<u8> {
    match &args.action {
        Action::Validate(args) => validate::here(args, output),
        _ => Err(Failure::usage("this action needs a daemon")),
    }
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let done = match &args.action {
        Action::Ls(args) => ls::main(args, client, output).await,
        Action::Show(args) => show::main(args, client, output).await,
        Action::Add(args) => add::main(args, client, output).await,
        Action::Rm(args) => rm::main(args, client, output).await,
        Action::Files(args) => files::main(args, client, output).await,
        Action::Cat(args) => cat::main(args, client).await,
        Action::Edit(args) => edit::main(args, client, output).await,
        Action::Export(args) => export::main(args, client, output).await,
        Action::Validate(args) => return validate::there(args, client, output).await,
    };
    done.map(|()| 0)
}

/// The next step in the words of this command.
fn refused(error: ClientError) -> Failure {
    let hint = match &error {
        ClientError::Refused {
            code: ErrorCode::NotFound,
            message,
            ..
        } if message.starts_with("Skill \"") => Some("`boxwood skill ls` shows the skills"),
        _ => None,
    };
    Failure::from(error).maybe_hint(hint.map(str::to_owned))
}

/// Departures from the Agent Skills rules, for stderr.
fn print_warnings(about: &str, warnings: &[SkillWarning]) {
    for warning in warnings {
        eprintln!(
            "boxwood: {}: {}",
            printable(about),
            printable(&warning.message)
        );
    }
}

/// Prints untrusted text of several lines.
fn print_text(text: &str) -> Outcome<()> {
    for line in text.lines() {
        let columns: Vec<_> = line.split('\t').map(printable).collect();
        Output::line(&columns.join("\t"))?;
    }
    Ok(())
}
