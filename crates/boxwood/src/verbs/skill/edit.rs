//! `boxwood skill edit`: opens a file of a skill in the user's editor.
//!
//! The file is replaced as a whole, unless it was changed in the store meanwhile. Edits that cannot be uploaded stay in
//! a local file that the error names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use boxwood_api::{ErrorCode, WrittenSkillFile};
use boxwood_client::{Client, ClientError};

use super::refused;
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::interactive::interrupts::Interrupts;
use crate::output::Output;
use crate::output::printable::printable;

/// The default limit of the store.
const MAX_BYTES: usize = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  boxwood skill edit pdf SKILL.md                   Open a file in $VISUAL, $EDITOR or vi
  boxwood skill edit pdf scripts/fill.py fill.py    Replace it with the contents of a local file
  generate | boxwood skill edit pdf data.json -     Replace it with the contents of stdin

A file that does not exist is created, with its parent directories.";

/// Edit a file of a skill
///
/// Opens the file in your editor and uploads it if you have changed it. The upload fails if the file was
/// changed in the store meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the skill
    name: String,

    /// Path of the file in the package
    file: String,

    /// File with the new contents, or `-` for stdin [default: open an editor]
    from: Option<PathBuf>,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let written = match &args.from {
        Some(from) => {
            let contents = input::read(from, MAX_BYTES as u64)?;
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

/// `None` when nothing was changed.
async fn edited(args: &Args, client: &Client) -> Outcome<Option<WrittenSkillFile>> {
    let (before, tag) = match client.read_skill_file(&args.name, &args.file).await {
        Ok(download) => {
            let tag = download.tag().map(str::to_owned);
            (download.whole(MAX_BYTES).await?, tag)
        }
        // The skill itself must be there; a file may be new.
        Err(error) if is_new_file(&error) => (Vec::new(), None),
        Err(error) => return Err(refused(error)),
    };
    let failed = |error| Failure::local("cannot create a local copy of the file", error);
    let directory = tempfile::Builder::new().prefix("boxwood-edit-").tempdir();
    let directory = directory.map_err(failed)?;
    let path = directory.path().join(copy_name(&args.file));
    std::fs::write(&path, &before).map_err(failed)?;
    open_editor(&path).await?;
    let after = std::fs::read(&path).map_err(|error| Failure::unreadable(&path, error))?;
    if after == before {
        return Ok(None);
    }
    let written = client
        .write_skill_file(&args.name, &args.file, after, tag.as_deref())
        .await;
    written.map(Some).map_err(|error| {
        // Keeps the directory.
        let _ = directory.keep();
        refused(error).hint(format!("your text is in `{}`", path.display()))
    })
}

fn is_new_file(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code: ErrorCode::NotFound, message, .. }
        if message.starts_with("Skill file"))
}

/// The name of the file without its directories. Editors detect the type of a file by its name.
fn copy_name(file: &str) -> &OsStr {
    Path::new(file).file_name().unwrap_or("file".as_ref())
}

/// Waits until the editor ends. Meanwhile signals such as Ctrl-C are left to the editor.
async fn open_editor(path: &Path) -> Outcome<()> {
    let editor = editor();
    let _ignored = Interrupts::watch()?;
    // Through a shell, for values such as `EDITOR="code --wait"`.
    let status = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(path)
        .status()
        .await
        .map_err(|error| Failure::local(format!("cannot start the editor `{editor}`"), error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the editor `{editor}` failed ({status}); nothing was changed"
    ))
    .exit(crate::failure::EXIT_ERROR)
    .hint("set VISUAL or EDITOR to your editor"))
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
    fn the_local_copy_has_the_files_name_without_directories() {
        assert_eq!(copy_name("SKILL.md"), "SKILL.md");
        assert_eq!(copy_name("scripts/fill.py"), "fill.py");
        assert_eq!(copy_name("../.."), "file");
        assert_eq!(copy_name("/"), "file");
        assert_eq!(copy_name("a/"), "a");
    }
}
