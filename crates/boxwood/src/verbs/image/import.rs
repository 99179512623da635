//! `boxwood image import`: an image from a directory or an archive.

use std::path::{Path, PathBuf};

use boxwood_api::{ImageInfo, ImageName};
use boxwood_client::Client;

use super::archive_stream::{Counted, archive_stream};
use super::image_name;
use super::pack;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;

const EXAMPLES: &str = "\
Examples:
  boxwood image import ./rootfs tools           A directory with a root file system in it
  boxwood image import rootfs.tar.gz            Called `rootfs`
  docker export web | boxwood image import - web:2
  zstd -dc rootfs.tar.zst | boxwood image import - tools
  sudo boxwood image import /srv/rootfs tools   Files that only root may read

What had the name before is replaced; boxes that run keep what they started from.";

/// Make an image of a directory or a tar archive
///
/// Takes a root file system: what `docker export` writes, or `debootstrap` makes. Devices, sockets and
/// pipes are left out, setuid bits are dropped. Owners are kept as numbers when the daemon is root.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A directory, a tar archive (plain or with gzip), or `-` for an archive on stdin
    #[arg(value_name = "DIR|TAR")]
    source: PathBuf,

    /// Name of the image; that of the directory or archive when left out
    #[arg(value_name = "NAME", value_parser = image_name)]
    name: Option<ImageName>,
}

pub(crate) async fn main(
    args: &Args,
    client: &Client,
    backend: Option<&str>,
    output: Output,
) -> Outcome<()> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_of(&args.source)?,
    };
    let info = send(&args.source, &name, client, backend).await?;
    output.name_or(&info, &info.name)
}

async fn send(
    source: &Path,
    name: &ImageName,
    client: &Client,
    backend: Option<&str>,
) -> Outcome<ImageInfo> {
    if source == Path::new("-") {
        let stdin = Counted::new(tokio::io::stdin());
        return Ok(client.import_image(name, backend, stdin).await?);
    }
    let failed = |error| Failure::local(format!("cannot read `{}`", source.display()), error);
    let about = tokio::fs::metadata(source).await.map_err(failed)?;
    if about.is_dir() {
        let directory = source.to_owned();
        let (archive, packing) = archive_stream(move |out| pack::pack(&directory, out));
        let sent = client
            .import_image(name, backend, Counted::new(archive))
            .await;
        return match packing.await {
            // What broke the archive matters more than that the connection broke with it.
            Ok(Err(error)) if !error.is_unread() => Err(Failure::from(error)),
            _ => Ok(sent?),
        };
    }
    let archive = tokio::fs::File::open(source).await.map_err(failed)?;
    Ok(client
        .import_image(name, backend, Counted::new(archive))
        .await?)
}

/// `rootfs` for `/srv/rootfs/` and `Rootfs.tar.gz` alike.
fn name_of(source: &Path) -> Outcome<ImageName> {
    let unnamed = || {
        let source = source.display().to_string();
        let source = printable(&source);
        Failure::usage(format!("`{source}` does not say what the image is called"))
            .hint("give a name: `boxwood image import DIR|TAR NAME`")
    };
    let name = source.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(unnamed)?.to_ascii_lowercase();
    let stem = [".tar.gz", ".tgz", ".tar"]
        .into_iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    ImageName::new(stem).map_err(|_| unnamed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_lends_its_name() {
        let name = |source: &str| name_of(Path::new(source)).ok().map(String::from);
        for source in [
            "rootfs",
            "/srv/rootfs/",
            "Rootfs.tar",
            "a/rootfs.tar.gz",
            "rootfs.tgz",
        ] {
            assert_eq!(name(source).as_deref(), Some("rootfs"), "{source}");
        }
        for source in ["-", "/", "..", ".", "my image.tar", ".tar"] {
            assert_eq!(name(source), None, "{source}");
        }
    }
}
