//! `boxwood skill rm`.

use boxwood_api::ErrorCode;
use boxwood_client::Client;
use serde::Serialize;

use super::refused;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;

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

#[derive(Serialize)]
struct Deleted<'a> {
    deleted: &'a [String],
}

/// Goes through all of them and fails at the end with the first error, as `boxwood rm` does.
pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let mut deleted = Vec::new();
    let mut failure: Option<Failure> = None;
    for name in &args.names {
        match client.delete_skill(name).await {
            Ok(answer) => {
                if !output.is_json() {
                    Output::line(&printable(&answer.deleted))?;
                }
                deleted.push(answer.deleted);
            }
            Err(error) if error.code() == ErrorCode::NotFound && args.force => {}
            Err(error) => {
                failure.get_or_insert(refused(error));
            }
        }
    }
    if output.is_json() {
        Output::json(&Deleted { deleted: &deleted })?;
    }
    failure.map_or(Ok(()), Err)
}
