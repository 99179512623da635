//! `boxwood image pull`: an image from its registry.

use boxwood_api::{ImageName, ImageProgress};
use boxwood_client::{Client, PullEvent};

use super::image_name;
use crate::failure::Outcome;
use crate::flags::size_text;
use crate::output::Output;
use crate::status_line::StatusLine;

const EXAMPLES: &str = "\
Examples:
  boxwood image pull alpine:3 --backend docker
  boxwood image pull registry.example:5000/tools/python:3.12 --backend podman

A session whose image is missing pulls it by itself. Ctrl-C ends the pull.";

/// Fetch an image from its registry
///
/// Docker and Podman can; the native backend has `boxwood image import` instead.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the image, with its registry and tag where they matter
    #[arg(value_name = "NAME", value_parser = image_name)]
    name: ImageName,
}

pub(crate) async fn main(
    args: &Args,
    client: &Client,
    backend: Option<&str>,
    output: Output,
) -> Outcome<()> {
    let mut pull = client.pull_image(&args.name, backend).await?;
    let mut line = StatusLine::new();
    let info = loop {
        match pull.next().await? {
            PullEvent::Progress(news) => line.draw(|| words(&news)),
            PullEvent::Done(info) => break info,
        }
    };
    drop(line);
    output.name_or(&info, &info.name)
}

fn words(news: &ImageProgress) -> String {
    match (news.current, news.total) {
        (Some(current), Some(total)) => {
            format!(
                "{} {} of {}",
                news.text,
                size_text(current),
                size_text(total)
            )
        }
        _ => news.text.clone(),
    }
}
