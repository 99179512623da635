//! `boxwood skill`: the daemon's skill store.

mod add;
mod edit;
mod pack;
mod validate;
mod view;

use boxwood_api::{ErrorCode, SkillWarning};
use boxwood_client::{Client, ClientError};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::output::printable::printable;
use crate::verbs::deletions::Deletions;

const EXAMPLES: &str = "\
Examples:
  boxwood skill add ./pdf                       Add a directory with a SKILL.md to the store
  boxwood skill add skills.zip --all            Add all skills of an archive
  boxwood skill ls
  boxwood skill show pdf
  boxwood skill edit pdf SKILL.md               Edit a file in your editor
  boxwood exec build --skill pdf -- ls /workspace/.skills/pdf
  boxwood skill rm pdf

`boxwood skill ACTION --help` has examples for every action.";

/// Manage skills
///
/// A skill is a directory with a `SKILL.md`: instructions for an agent, and the scripts and files that they
/// refer to. The daemon keeps skills in its store. `--skill NAME` mounts a skill in a box, read-only, under
/// `/workspace/.skills/NAME`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Ls(view::Ls),
    Show(view::Show),
    Add(add::Args),
    Rm(Rm),
    Files(view::Files),
    Cat(view::Cat),
    Edit(edit::Args),
    Export(view::Export),
    Validate(validate::Args),
}

const RM_EXAMPLES: &str = "\
Examples:
  boxwood skill rm pdf
  boxwood skill rm -f pdf csv           Ignore skills that do not exist";

/// Remove skills
///
/// Removes the package with all its files. Boxes that have it mounted see an empty directory.
#[derive(Debug, clap::Args)]
#[command(after_help = RM_EXAMPLES)]
struct Rm {
    /// Names of the skills
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Ignore skills that do not exist
    #[arg(short, long)]
    force: bool,
}

impl Args {
    /// Returns true if the action needs no daemon.
    pub(crate) fn is_local(&self) -> bool {
        matches!(&self.action, Action::Validate(args) if args.is_local())
    }
}

/// Runs an action that needs no daemon.
pub(crate) fn local(args: &Args, output: Output) -> Outcome<u8> {
    match &args.action {
        Action::Validate(args) => validate::local(args, output),
        _ => Err(Failure::internal("this action needs a daemon")),
    }
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let done = match &args.action {
        Action::Ls(args) => view::ls(args, client, output).await,
        Action::Show(args) => view::show(args, client, output).await,
        Action::Add(args) => add::main(args, client, output).await,
        Action::Rm(args) => rm(args, client, output).await,
        Action::Files(args) => view::files(args, client, output).await,
        Action::Cat(args) => view::cat(args, client).await,
        Action::Edit(args) => edit::main(args, client, output).await,
        Action::Export(args) => view::export(args, client, output).await,
        Action::Validate(args) => return validate::remote(args, client, output).await,
    };
    done.map(|()| 0)
}

async fn rm(args: &Rm, client: &Client, output: Output) -> Outcome<()> {
    let mut deletions = Deletions::new(output);
    for name in &args.names {
        match client.delete_skill(name).await {
            Ok(removed) => deletions.deleted(removed.deleted)?,
            Err(error) if error.code() == ErrorCode::NotFound && args.force => {}
            Err(error) => deletions.failed(refused(error)),
        }
    }
    deletions.finish("deleted")
}

/// Adds a hint that names a command.
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

/// Prints where a skill does not follow the Agent Skills rules.
fn print_warnings(subject: &str, warnings: &[SkillWarning]) {
    for warning in warnings {
        let (subject, message) = (printable(subject), printable(&warning.message));
        eprintln!("boxwood: {subject}: {message}");
    }
}
