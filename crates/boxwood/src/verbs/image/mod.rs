//! `boxwood image`: what boxes start from. One file per action: its flags, its help, what it does.

mod archive_stream;
mod import;
mod ls;
mod pack;
mod pull;
mod rm;

use boxwood_api::ImageName;
use boxwood_client::Client;

use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood image import ./rootfs tools           A directory with a root file system in it
  boxwood image import rootfs.tar.gz tools:2    A tar of one, plain or with gzip
  docker export web | boxwood image import - web
  boxwood image pull alpine:3 --backend docker
  boxwood image ls
  boxwood exec build --image tools -- ls /
  boxwood image rm tools

`boxwood image ACTION --help` has examples for every action.";

/// Manage images
///
/// An image is the root file system that a box starts from. Without one, a native box sees this
/// machine's own system directories, read-only. Docker and Podman keep images in their own stores; the
/// native backend unpacks them below the daemon's state directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The backend whose images are meant: `native`, `docker`, `podman`
    #[arg(long, value_name = "NAME", global = true)]
    backend: Option<String>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Ls(ls::Args),
    Pull(pull::Args),
    Import(import::Args),
    Rm(rm::Args),
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let backend = args.backend.as_deref();
    match &args.action {
        Action::Ls(args) => ls::main(args, client, backend, output).await,
        Action::Pull(args) => pull::main(args, client, backend, output).await,
        Action::Import(args) => import::main(args, client, backend, output).await,
        Action::Rm(args) => rm::main(args, client, backend, output).await,
    }
}

/// An image's name as an argument.
fn image_name(text: &str) -> Result<ImageName, String> {
    ImageName::new(text).map_err(|error| format!("{error}; {}", error.hint()))
}
