//! `boxwood skill rm`.

use boxwood_api::ErrorCode;
use boxwood_client::Client;

use super::refused;
use crate::failure::Outcome;
use crate::output::Output;
use crate::verbs::deletions::Deletions;

const EXAMPLES: &str = "\
Examples:
  boxwood skill rm pdf
  boxwood skill rm -f pdf csv           No error when they are gone already";

/// Remove skills
///
/// Removes the package with every file in it. Boxes that have it mounted see an empty directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Names of the skills
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// A skill that does not exist is not an error
    #[arg(short, long)]
    force: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
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
