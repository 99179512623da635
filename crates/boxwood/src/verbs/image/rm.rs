//! `boxwood image rm`: images away.

use boxwood_api::{ErrorCode, ImageName};
use boxwood_client::Client;

use super::image_name;
use crate::failure::Outcome;
use crate::output::Output;
use crate::verbs::deletions::Deletions;

const EXAMPLES: &str = "\
Examples:
  boxwood image rm tools
  boxwood image rm -f tools old:1           No error when they are gone already
  boxwood image rm alpine:3 --backend docker";

/// Remove images
///
/// An image that a box runs from is not removed. Directories of the operator's configuration are not
/// either.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Names of the images
    #[arg(required = true, value_name = "NAME", value_parser = image_name)]
    names: Vec<ImageName>,

    /// An image that does not exist is not an error
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn main(
    args: &Args,
    client: &Client,
    backend: Option<&str>,
    output: Output,
) -> Outcome<()> {
    let mut deletions = Deletions::new(output);
    for name in &args.names {
        match client.remove_image(name, backend).await {
            Ok(removed) => deletions.deleted(removed.deleted)?,
            Err(error) if args.force && error.code() == ErrorCode::ImageNotFound => {}
            Err(error) => deletions.failed(error.into()),
        }
    }
    deletions.finish("deleted")
}
