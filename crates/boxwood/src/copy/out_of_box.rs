//! From a box to this machine.
//!
//! Names from the box are not trusted: a name that is not one plain component is skipped. A file is written under a
//! temporary name and then renamed, so that an existing link is replaced and never followed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use boxwood_api::{FileEntry, FileKind, SessionId};
use boxwood_client::Client;

use super::Progress;
use super::partial::{Partial, unwritable};
use crate::failure::{Failure, Outcome};

/// Copies a file, or a directory with everything in it, out of the box to `target`.
pub(crate) async fn out_of_box(
    client: &Client,
    session: &SessionId,
    source: &str,
    target: &Path,
    progress: &Progress,
) -> Outcome<()> {
    let download = Download {
        client,
        session,
        progress,
    };
    let entry = client.stat_file(session, source).await?;
    let to = destination(source, target)?;
    match entry.kind {
        FileKind::Directory => download.tree(source.to_owned(), to).await,
        FileKind::File => download.file(source, &to, &entry).await,
        FileKind::Symlink => Err(Failure::usage(format!(
            "cannot copy `{source}`: it is a symbolic link"
        ))
        .hint("copy the file or directory that it points to")),
        FileKind::Other => Err(Failure::usage(format!(
            "cannot copy `{source}`: it is neither a regular file nor a directory"
        ))),
    }
}

fn destination(source: &str, target: &Path) -> Outcome<PathBuf> {
    let written_as_directory = target.as_os_str().as_encoded_bytes().ends_with(b"/");
    let contents_only = source.ends_with("/.");
    if contents_only || !(target.is_dir() || written_as_directory) {
        return Ok(target.to_owned());
    }
    let name = source
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .filter(|name| is_plain(name))
        .ok_or_else(|| {
            Failure::usage(format!("`{source}` does not end with a file name"))
                .hint("end the destination with the name of the copy")
        })?;
    Ok(target.join(name))
}

/// One component and nothing else, on any system.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        // Names that are not UTF-8 contain a replacement character and cannot be requested.
        && !name.contains(['/', '\\', '\0', char::REPLACEMENT_CHARACTER])
}

struct Download<'a> {
    client: &'a Client,
    session: &'a SessionId,
    progress: &'a Progress,
}

impl Download<'_> {
    async fn tree(&self, from: String, to: PathBuf) -> Outcome<()> {
        let mut pending = vec![(from, to)];
        let mut is_top = true;
        while let Some((from, to)) = pending.pop() {
            make_directory(&to, std::mem::take(&mut is_top))?;
            let list = self.client.list_files(self.session, &from).await?;
            if list.truncated {
                return Err(Failure::usage(format!(
                    "cannot copy the directory `{from}`: it has too many entries"
                ))
                .hint("pack it in the box with tar and copy the archive"));
            }
            for entry in list.entries {
                let source_path = format!("{}/{}", from.trim_end_matches('/'), entry.name);
                if !is_plain(&entry.name) {
                    self.progress
                        .skip(&source_path, "its name is not a valid file name");
                    continue;
                }
                let target_path = to.join(&entry.name);
                match entry.kind {
                    FileKind::Directory => pending.push((source_path, target_path)),
                    FileKind::File => self.file(&source_path, &target_path, &entry).await?,
                    FileKind::Symlink => self.progress.skip(&source_path, "it is a symbolic link"),
                    FileKind::Other => self.progress.skip(&source_path, "it is not a regular file"),
                }
            }
        }
        Ok(())
    }

    async fn file(&self, from: &str, to: &Path, entry: &FileEntry) -> Outcome<()> {
        if fs::symlink_metadata(to).is_ok_and(|metadata| metadata.is_dir()) {
            return Err(Failure::usage(format!(
                "cannot write `{}`: it is a directory",
                to.display()
            )));
        }
        let mut partial = Partial::beside(to)?;
        let mut download = self.client.read_file(self.session, from).await?;
        while let Some(bytes) = download.chunk().await? {
            partial.write(to, &bytes).await?;
            self.progress.add_bytes(bytes.len());
        }
        partial.complete(to, entry.mode).await?;
        self.progress.file_done();
        Ok(())
    }
}

/// The top was named by the user and may be a link; below it a link could lead anywhere.
fn make_directory(path: &Path, is_top: bool) -> Outcome<()> {
    match fs::create_dir(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = if is_top {
                fs::metadata(path)
            } else {
                fs::symlink_metadata(path)
            };
            match found {
                Ok(metadata) if metadata.is_dir() => Ok(()),
                Ok(_) => Err(Failure::usage(format!(
                    "cannot create the directory `{}`: a file has this name",
                    path.display()
                ))),
                Err(error) => Err(unwritable(path, error)),
            }
        }
        Err(error) => Err(unwritable(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_box_stays_in_its_directory() {
        for name in ["a", "a b", "..a", "a:b", ".hidden"] {
            assert!(is_plain(name), "{name:?}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/etc/passwd",
            "..\\x",
            "a\0b",
            "\u{fffd}",
        ] {
            assert!(!is_plain(name), "{name:?}");
        }
    }

    #[test]
    fn a_copy_lands_where_docker_would_put_it() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path();
        assert_eq!(destination("/w/a.txt", here).unwrap(), here.join("a.txt"));
        assert_eq!(
            destination("/w/a.txt", &here.join("b")).unwrap(),
            here.join("b")
        );
        assert_eq!(destination("/w/.", here).unwrap(), here);
        assert!(destination("/", here).is_err());
        assert!(destination("/w/..", here).is_err());
    }

    #[test]
    fn a_link_below_the_top_is_never_taken_for_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(make_directory(&link, false).is_err());
        assert!(make_directory(&link, true).is_ok());
    }
}
