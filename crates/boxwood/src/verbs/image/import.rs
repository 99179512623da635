//! `boxwood image import`: an image from a directory or an archive.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use boxwood_api::{ImageInfo, ImageName};
use boxwood_client::Client;
use tokio::io::{AsyncRead, DuplexStream};
use tokio_util::io::{InspectReader, SyncIoBridge};

use super::{image_name, pack};
use crate::failure::{Failure, Outcome};
use crate::flags::size_text;
use crate::output::Output;
use crate::output::printable::printable;
use crate::output::status_line::StatusLine;

const EXAMPLES: &str = "\
Examples:
  boxwood image import ./rootfs tools           Import a directory that contains a root file system
  boxwood image import rootfs.tar.gz            Import an archive as `rootfs`
  docker export web | boxwood image import - web:2
  sudo boxwood image import /srv/rootfs tools   Import files that only root may read

An existing image of that name is replaced; running boxes keep the old one.";

/// Size of the buffer between the packing thread and the upload.
const PIPE_BYTES: usize = 256 * 1024;

/// Create an image from a directory or a tar archive
///
/// The directory or archive is a root file system, such as the output of `docker export` or `debootstrap`.
/// Devices, sockets, pipes and setuid bits are left out. Numeric owners are kept if the daemon runs as root.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A directory, a tar archive (plain or with gzip), or `-` for an archive on stdin
    #[arg(value_name = "DIR|TAR")]
    source: PathBuf,

    /// Name of the image [default: the name of the directory or archive]
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
        let stdin = counted(tokio::io::stdin());
        return Ok(client.import_image(name, backend, stdin).await?);
    }
    let failed = |error| Failure::unreadable(source, error);
    let metadata = tokio::fs::metadata(source).await.map_err(failed)?;
    if !metadata.is_dir() {
        let archive = counted(tokio::fs::File::open(source).await.map_err(failed)?);
        return Ok(client.import_image(name, backend, archive).await?);
    }
    let (archive, out) = tokio::io::duplex(PIPE_BYTES);
    let upload = async {
        let uploaded = client.import_image(name, backend, counted(archive)).await;
        uploaded.map_err(Failure::from)
    };
    // The upload is cancelled if the directory cannot be packed.
    let (info, ()) = tokio::try_join!(upload, packed(source, out))?;
    Ok(info)
}

/// Writes the directory as an archive.
async fn packed(directory: &Path, out: DuplexStream) -> Outcome<()> {
    let directory = directory.to_owned();
    let mut out = SyncIoBridge::new(out);
    let packing = tokio::task::spawn_blocking(move || {
        let mut buffered = BufWriter::with_capacity(PIPE_BYTES, &mut out);
        let outcome = pack::pack(&directory, &mut buffered);
        drop(buffered);
        (outcome, out)
    });
    let (outcome, out) = packing.await.map_err(Failure::internal)?;
    match outcome {
        Ok(()) => Ok(()),
        // The upload has ended; its response tells why.
        Err(error) if error.is_unread() => Ok(()),
        Err(error) => {
            // Not closed: an archive that ends early could be taken for a complete one.
            std::mem::forget(out);
            Err(error.into())
        }
    }
}

/// Shows how many bytes were read.
fn counted<R: AsyncRead + Send + Unpin + 'static>(
    reader: R,
) -> impl AsyncRead + Send + Unpin + 'static {
    let (mut bytes, mut line) = (0, StatusLine::new(true));
    InspectReader::new(reader, move |chunk| {
        bytes += chunk.len() as u64;
        line.draw(|| format!("sent {}", size_text(bytes)));
    })
}

/// `rootfs` for `/srv/rootfs/` and `Rootfs.tar.gz` alike.
fn name_of(source: &Path) -> Outcome<ImageName> {
    let unnamed = || {
        let source = source.display().to_string();
        let source = printable(&source);
        Failure::usage(format!("`{source}` is not a valid image name"))
            .hint("give a name: `boxwood image import DIR|TAR NAME`")
    };
    let name = source.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(unnamed)?.to_ascii_lowercase();
    let stem = [".tar.gz", ".tgz", ".tar"]
        .into_iter()
        .find_map(|extension| name.strip_suffix(extension))
        .unwrap_or(&name);
    ImageName::new(stem).map_err(|_| unnamed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_image_comes_from_its_archive() {
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
