//! `boxwood skill edit`: opens a file of a skill in the user's editor.
//!
//! The file is replaced as a whole, unless it was changed in the store meanwhile. Edits are never lost: if they cannot
//! be written back, they stay in a local file that the error names.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use boxwood_api::{ErrorCode, WrittenSkillFile};
use boxwood_client::{Client, ClientError};
use tempfile::TempDir;

use super::refused;
use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::printable::printable;

/// The default limit of the store.
const MOST_BYTES: usize = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  boxwood skill edit pdf SKILL.md                   In $VISUAL, $EDITOR or vi
  boxwood skill edit pdf scripts/fill.py fill.py    With the contents of a file
  generate | boxwood skill edit pdf data.json -     With what comes from stdin

A file that does not exist is created, with the directories above it.";

/// Change a file of a skill
///
/// Opens the file in your editor and writes it back when you have changed it. The file is replaced in
/// one step, and only if it was not changed in the store in the meantime.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the skill
    name: String,

    /// File of the package
    file: String,

    /// File with the new contents, or `-` for stdin; without it an editor opens
    from: Option<PathBuf>,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let written = match &args.from {
        Some(from) => {
            let contents = read(from)?;
            let written = client
                .write_skill_file(&args.name, &args.file, contents, None)
                .await
                .map_err(refused)?;
            Some(written)
        }
        None => edited(args, client).await?,
    };
    match written {
        Some(written) if output.is_json() => Output::json(&written),
        Some(written) => Output::line(&printable(&written.path)),
        None if output.is_json() => Output::json(&WrittenSkillFile {
            path: args.file.clone(),
            bytes_written: 0,
        }),
        None => {
            eprintln!("boxwood: nothing was changed");
            Ok(())
        }
    }
}

fn read(from: &Path) -> Outcome<Vec<u8>> {
    if from == Path::new("-") {
        let mut bytes = Vec::new();
        // One more than allowed, so that too much can be told from just enough.
        let most = MOST_BYTES as u64 + 1;
        std::io::stdin()
            .lock()
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::local("stdin could not be read", error))?;
        return Ok(bytes);
    }
    std::fs::read(from)
        .map_err(|error| Failure::local(format!("`{}` could not be read", from.display()), error))
}

/// `None` when nothing was changed.
async fn edited(args: &Args, client: &Client) -> Outcome<Option<WrittenSkillFile>> {
    let (before, tag) = match client.read_skill_file(&args.name, &args.file).await {
        Ok(download) => {
            let tag = download.tag().map(str::to_owned);
            (download.whole(MOST_BYTES).await?, tag)
        }
        // The skill itself must be there; a file may be new.
        Err(error) if is_new_file(&error) => (Vec::new(), None),
        Err(error) => return Err(refused(error)),
    };
    let desk = Desk::new(&args.file, &before)?;
    open_editor(&desk.path).await?;
    let after = desk.contents()?;
    if after == before {
        return Ok(None);
    }
    let written = client
        .write_skill_file(&args.name, &args.file, after, tag.as_deref())
        .await;
    written.map(Some).map_err(|error| {
        let why = refused(error);
        let kept = desk.keep();
        why.hint(format!("your text is in `{}`", kept.display()))
    })
}

fn is_new_file(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code: ErrorCode::NotFound, message, .. }
        if message.starts_with("Skill file"))
}

/// A place for one file under its own name, which tells the editor what kind of text it is.
struct Desk {
    directory: TempDir,
    path: PathBuf,
}

impl Desk {
    fn new(file: &str, contents: &[u8]) -> Outcome<Self> {
        let failed =
            |error| Failure::local("there is no place for a copy of the file to edit", error);
        let directory = tempfile::Builder::new()
            .prefix("boxwood-edit-")
            .tempdir()
            .map_err(failed)?;
        let name = file
            .rsplit('/')
            .next()
            .filter(|name| !matches!(*name, "" | "." | "..") && !name.contains('\0'))
            .unwrap_or("file");
        let path = directory.path().join(name);
        let mut copy = std::fs::File::create_new(&path).map_err(failed)?;
        copy.write_all(contents).map_err(failed)?;
        Ok(Self { directory, path })
    }

    fn contents(&self) -> Outcome<Vec<u8>> {
        std::fs::read(&self.path).map_err(|error| {
            Failure::local(
                format!("`{}` could not be read", self.path.display()),
                error,
            )
        })
    }

    /// Leaves the file where it is.
    fn keep(self) -> PathBuf {
        // The directory's name goes with the path.
        let _ = self.directory.keep();
        self.path
    }
}

/// Waits for the person. Ctrl-C belongs to the editor while it is open.
async fn open_editor(path: &Path) -> Outcome<()> {
    let editor = editor();
    let _held =
        Interrupts::watch().map_err(|error| Failure::local("signals cannot be received", error))?;
    // Through a shell, because people write `EDITOR="code --wait"`.
    let status = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(path)
        .status()
        .await
        .map_err(|error| Failure::local(format!("`{editor}` could not be started"), error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the editor `{editor}` ended with an error; nothing was changed"
    ))
    .exit(crate::failure::EXIT_ERROR)
    .hint("set VISUAL or EDITOR to the one you use"))
}

fn editor() -> String {
    ["VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|editor| !editor.trim().is_empty())
        .unwrap_or_else(|| "vi".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_editor_sees_the_files_own_name_and_never_a_path() {
        let check = |file: &str, name: &str| {
            let desk = Desk::new(file, b"x").expect("a desk");
            assert_eq!(desk.path, desk.directory.path().join(name));
            assert_eq!(desk.contents().expect("read"), b"x");
        };
        check("SKILL.md", "SKILL.md");
        check("scripts/fill.py", "fill.py");
        check("../..", "file");
        check("a/", "file");
    }
}
