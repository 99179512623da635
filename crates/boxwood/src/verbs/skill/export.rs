//! `boxwood skill export`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use boxwood_client::{Client, Download};
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;

use super::refused;
use crate::copy::{Partial, Progress};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood skill export pdf pdf.zip
  boxwood skill export pdf > pdf.zip
  boxwood skill export pdf - | ssh other boxwood skill add - --name pdf";

/// Write a skill as a zip archive
///
/// The archive is what `boxwood skill add` takes. A file appears under its name when it is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the skill
    name: String,

    /// Where to write it; stdout when left out, and with `-`
    file: Option<PathBuf>,
}

#[derive(Serialize)]
struct Exported<'a> {
    file: &'a Path,
    bytes: u64,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    if file.is_none() && args.file.is_none() && std::io::stdout().is_terminal() {
        return Err(Failure::usage("an archive is nothing for a terminal")
            .hint("name a file, as in `boxwood skill export pdf pdf.zip`"));
    }
    let download = client.export_skill(&args.name).await.map_err(refused)?;
    match file {
        None => to_stdout(download).await,
        Some(file) => to_file(download, file, output).await,
    }
}

async fn to_stdout(mut download: Download) -> Outcome<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(piece) = download.chunk().await? {
        stdout.write_all(&piece).await?;
    }
    Ok(stdout.flush().await?)
}

async fn to_file(mut download: Download, file: &Path, output: Output) -> Outcome<()> {
    let progress = Progress::new();
    let mut partial = Partial::beside(file)?;
    while let Some(piece) = download.chunk().await? {
        partial.write(file, &piece).await?;
        progress.add_bytes(piece.len());
    }
    partial.settle(file, 0o644).await?;
    let bytes = progress.finish().bytes;
    output.name_or(&Exported { file, bytes }, &file.to_string_lossy())
}
