//! `boxwood image ls`: which images there are.

use boxwood_api::{ImageInfo, ImageSource};
use boxwood_client::Client;

use crate::failure::Outcome;
use crate::flags::size_text;
use crate::output::Output;
use crate::printable::printable;
use crate::table::Table;
use crate::verbs::ago;

const EXAMPLES: &str = "\
Examples:
  boxwood image ls                      Of every backend
  boxwood image ls --backend docker
  boxwood image ls -q                   Names only, one per line
  boxwood image ls -o json              Everything";

/// List images
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Names only, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) async fn main(
    args: &Args,
    client: &Client,
    backend: Option<&str>,
    output: Output,
) -> Outcome<()> {
    let list = client.images(backend).await?;
    if output.is_json() {
        return Output::json(&list);
    }
    for unlisted in &list.unavailable {
        let (backend, why) = (printable(&unlisted.backend), printable(&unlisted.why));
        eprintln!("boxwood: the images of `{backend}` are not listed: {why}");
    }
    if args.quiet {
        for image in &list.images {
            Output::line(&printable(&image.name))?;
        }
        return Ok(());
    }
    output.table(&table(&list.images))
}

fn table(images: &[ImageInfo]) -> Table {
    let mut table = Table::new(&["NAME", "BACKEND", "FROM", "SIZE", "CREATED"]);
    for image in images {
        let from = match image.source {
            ImageSource::Configured => "configuration",
            ImageSource::Store => "import",
            ImageSource::Engine => "engine",
        };
        table.row([
            image.name.as_str().into(),
            image.backend.as_str().into(),
            from.into(),
            image
                .size_bytes
                .map_or_else(|| "-".into(), |size| size_text(size).into()),
            image
                .created
                .map_or_else(|| "-".into(), |then| ago(then).into()),
        ]);
    }
    table
}
