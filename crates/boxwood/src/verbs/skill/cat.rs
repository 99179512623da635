//! `boxwood skill cat`.

use boxwood_client::Client;
use tokio::io::AsyncWriteExt as _;

use super::refused;
use crate::failure::Outcome;

const EXAMPLES: &str = "\
Examples:
  boxwood skill cat pdf SKILL.md
  boxwood skill cat pdf assets/logo.png > logo.png";

/// Print a file of a skill
///
/// The bytes go to stdout as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the skill
    name: String,

    /// File of the package
    file: String,
}

pub(super) async fn main(args: &Args, client: &Client) -> Outcome<()> {
    let mut download = client
        .read_skill_file(&args.name, &args.file)
        .await
        .map_err(refused)?;
    let mut stdout = tokio::io::stdout();
    while let Some(piece) = download.chunk().await? {
        stdout.write_all(&piece).await?;
    }
    Ok(stdout.flush().await?)
}
