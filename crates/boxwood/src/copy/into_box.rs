//! From this machine into a box.

use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwood_api::{ErrorCode, FileKind, SessionId};
use boxwood_client::Client;
use tokio_util::io::InspectReader;

use super::{Progress, entries};
use crate::failure::{Failure, Outcome};

/// Copies a file, or a directory with everything in it, to `target` in the box.
pub(crate) async fn into_box(
    client: &Client,
    source: &Path,
    session: &SessionId,
    target: &str,
    progress: &Arc<Progress>,
) -> Outcome<()> {
    let upload = Upload {
        client,
        session,
        progress,
    };
    // The source itself was named by the user, so a link there is followed.
    let metadata = fs::metadata(source).map_err(|error| Failure::unreadable(source, error))?;
    let existing = upload.kind(target).await?;
    let to = destination(source, target, existing)?;
    if metadata.is_dir() {
        upload.tree(source.to_owned(), to, existing).await
    } else if metadata.is_file() {
        upload.file(source, &to, &metadata).await
    } else {
        Err(Failure::usage(format!(
            "cannot copy `{}`: it is neither a regular file nor a directory",
            source.display()
        )))
    }
}

/// In a target that is an existing directory or ends with `/`, the copy keeps the name of the source; otherwise the
/// target is the new name. `dir/.` means the contents of `dir`.
fn destination(source: &Path, target: &str, existing: Option<FileKind>) -> Outcome<String> {
    let contents_only = source.as_os_str().as_encoded_bytes().ends_with(b"/.");
    let into = existing == Some(FileKind::Directory) || target.ends_with('/');
    if !into || contents_only {
        return Ok(target.to_owned());
    }
    let name = absolute_name(source)?;
    Ok(join(target, &name))
}

/// The last part of a path, also for `.` and `..`.
fn absolute_name(source: &Path) -> Outcome<String> {
    let real;
    let path = if source.file_name().is_some() {
        source
    } else {
        real = fs::canonicalize(source).map_err(|error| Failure::unreadable(source, error))?;
        &real
    };
    path.file_name()
        .and_then(|name| name.to_str())
        .map(str::to_owned)
        .ok_or_else(|| {
            let source = source.display();
            Failure::usage(format!(
                "`{source}` does not end with a file name that is UTF-8"
            ))
            .hint("end the destination with the name of the copy")
        })
}

fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

struct Upload<'a> {
    client: &'a Client,
    session: &'a SessionId,
    progress: &'a Arc<Progress>,
}

impl Upload<'_> {
    /// What is at a path in the box, if anything.
    async fn kind(&self, path: &str) -> Outcome<Option<FileKind>> {
        match self.client.stat_file(self.session, path).await {
            Ok(entry) => Ok(Some(entry.kind)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn tree(&self, from: PathBuf, to: String, existing: Option<FileKind>) -> Outcome<()> {
        if existing.is_some_and(|kind| kind == FileKind::File) {
            return Err(Failure::usage(format!(
                "cannot copy a directory to `{to}`, which is a file"
            )));
        }
        let mut pending = vec![(from, to)];
        while let Some((from, to)) = pending.pop() {
            self.client.make_directory(self.session, &to).await?;
            for (name, path, metadata) in entries(&from, self.progress)? {
                let to = join(&to, &name);
                if metadata.is_dir() {
                    pending.push((path, to));
                } else {
                    self.file(&path, &to, &metadata).await?;
                }
            }
        }
        Ok(())
    }

    async fn file(&self, from: &Path, to: &str, metadata: &Metadata) -> Outcome<()> {
        let file = tokio::fs::File::open(from).await;
        let file = file.map_err(|error| Failure::unreadable(from, error))?;
        let progress = Arc::clone(self.progress);
        let counted = InspectReader::new(file, move |bytes| progress.add_bytes(bytes.len()));
        // Without setuid, setgid and sticky, which have another meaning in the box.
        let mode = metadata.permissions().mode() & 0o777;
        self.client
            .upload_file(self.session, to, mode, counted)
            .await?;
        self.progress.file_done();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, target: &str, existing: Option<FileKind>, expected: &str) {
        assert_eq!(
            destination(Path::new(source), target, existing).unwrap(),
            expected
        );
    }

    #[test]
    fn a_copy_lands_where_docker_would_put_it() {
        check("a.txt", "/w", Some(FileKind::Directory), "/w/a.txt");
        check("a.txt", "/w/", None, "/w/a.txt");
        check("a.txt", "/w/b.txt", None, "/w/b.txt");
        check("a.txt", "/w/b.txt", Some(FileKind::File), "/w/b.txt");
        check("dir", "/w", Some(FileKind::Directory), "/w/dir");
        check("dir/", "/w", Some(FileKind::Directory), "/w/dir");
        check("dir/.", "/w", Some(FileKind::Directory), "/w");
        check("dir", "/new", None, "/new");
        check("a", "/", Some(FileKind::Directory), "/a");
    }
}
