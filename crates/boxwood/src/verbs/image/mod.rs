//! `boxwood image`: the images that boxes start from.

mod import;
mod pack;

use boxwood_api::{ErrorCode, ImageInfo, ImageName, ImageProgress, ImageSource};
use boxwood_client::{Client, PullEvent};

use crate::failure::Outcome;
use crate::flags::size_text;
use crate::output::printable::printable;
use crate::output::status_line::StatusLine;
use crate::output::table::Table;
use crate::output::{Output, ago};
use crate::verbs::deletions::Deletions;

const EXAMPLES: &str = "\
Examples:
  boxwood image import ./rootfs tools           Import a directory that contains a root file system
  boxwood image import rootfs.tar.gz tools:2    Import a tar archive, plain or gzip-compressed
  docker export web | boxwood image import - web
  boxwood image pull alpine:3 --backend docker
  boxwood image ls
  boxwood exec build --image tools -- ls /      Use an image
  boxwood image rm tools

`boxwood image ACTION --help` has examples for every action.";

/// Manage images
///
/// An image is the root file system that a box starts from. Without one, a native box sees the host's
/// system directories, read-only. Docker and Podman keep images in their own stores; the native backend
/// stores them in the daemon's state directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Backend of the images: `native`, `docker` or `podman`
    #[arg(long, value_name = "NAME", global = true)]
    backend: Option<String>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Ls(Ls),
    Pull(Pull),
    Import(import::Args),
    Rm(Rm),
}

const LS_EXAMPLES: &str = "\
Examples:
  boxwood image ls                      Images of every backend
  boxwood image ls --backend docker
  boxwood image ls -o json              All details";

/// List images
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = LS_EXAMPLES)]
struct Ls {
    /// Print only names, one per line
    #[arg(short, long)]
    quiet: bool,
}

const PULL_EXAMPLES: &str = "\
Examples:
  boxwood image pull alpine:3 --backend docker
  boxwood image pull registry.example:5000/tools/python:3.12 --backend podman

A session whose image is missing pulls it automatically. Ctrl-C cancels the pull.";

/// Download an image from its registry
///
/// Supported by Docker and Podman. For the native backend, use `boxwood image import`.
#[derive(Debug, clap::Args)]
#[command(after_help = PULL_EXAMPLES)]
struct Pull {
    /// Name of the image, with registry and tag if needed
    #[arg(value_parser = image_name)]
    name: ImageName,
}

const RM_EXAMPLES: &str = "\
Examples:
  boxwood image rm tools
  boxwood image rm -f tools old:1           Ignore images that do not exist
  boxwood image rm alpine:3 --backend docker";

/// Remove images
///
/// Images in use by a box are not removed, and neither are directories of the daemon's configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = RM_EXAMPLES)]
struct Rm {
    /// Names of the images
    #[arg(required = true, value_name = "NAME", value_parser = image_name)]
    names: Vec<ImageName>,

    /// Ignore images that do not exist
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let backend = args.backend.as_deref();
    match &args.action {
        Action::Ls(args) => ls(args, client, backend, output).await,
        Action::Pull(args) => pull(args, client, backend, output).await,
        Action::Import(args) => import::main(args, client, backend, output).await,
        Action::Rm(args) => rm(args, client, backend, output).await,
    }
}

fn image_name(text: &str) -> Result<ImageName, String> {
    ImageName::new(text).map_err(|error| format!("{error}; {}", error.hint()))
}

async fn ls(args: &Ls, client: &Client, backend: Option<&str>, output: Output) -> Outcome<()> {
    let list = client.images(backend).await?;
    if output.is_json() {
        return Output::json(&list);
    }
    for unlisted in &list.unavailable {
        let (backend, why) = (printable(&unlisted.backend), printable(&unlisted.why));
        eprintln!("boxwood: cannot list the images of `{backend}`: {why}");
    }
    if args.quiet {
        return Output::names(list.images.iter().map(|image| image.name.as_str()));
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
        let (size, created) = (image.size_bytes.map(size_text), image.created.map(ago));
        table.row([
            image.name.as_str().into(),
            image.backend.as_str().into(),
            from.into(),
            size.as_deref().unwrap_or("-").into(),
            created.as_deref().unwrap_or("-").into(),
        ]);
    }
    table
}

async fn pull(args: &Pull, client: &Client, backend: Option<&str>, output: Output) -> Outcome<()> {
    let mut pull = client.pull_image(&args.name, backend).await?;
    let mut line = StatusLine::new(true);
    let info = loop {
        match pull.next().await? {
            PullEvent::Progress(progress) => line.draw(|| progress_text(&progress)),
            PullEvent::Done(info) => break info,
        }
    };
    drop(line);
    output.name_or(&info, &info.name)
}

fn progress_text(progress: &ImageProgress) -> String {
    let text = &progress.text;
    match (progress.current, progress.total) {
        (Some(current), Some(total)) => {
            format!("{text} {} of {}", size_text(current), size_text(total))
        }
        _ => text.clone(),
    }
}

async fn rm(args: &Rm, client: &Client, backend: Option<&str>, output: Output) -> Outcome<()> {
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
