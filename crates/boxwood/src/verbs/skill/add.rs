//! `boxwood skill add`.

use std::path::{Path, PathBuf};

use boxwood_api::PlannedSkill;
use boxwood_client::{Client, SkillArchive};

use super::pack::pack;
use super::{print_warnings, refused};
use crate::copy::Progress;
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output::Output;
use crate::output::printable::printable;
use crate::output::table::Table;

/// Archives are read into memory.
const MAX_BYTES: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  boxwood skill add ./pdf                       Add a directory with a SKILL.md
  boxwood skill add pdf.zip                     Add an archive of such a directory
  boxwood skill add ./skills --dry-run          List the skills in a directory
  boxwood skill add ./skills --select pdf --select office/csv
  boxwood skill add ./skills --all
  boxwood skill add ./pdf --name pdf-next       Add it under another name
  curl -sL https://example.org/pdf.zip | boxwood skill add - --name pdf";

/// Add skills to the daemon's store
///
/// Adds the skills of a directory or a zip archive and prints their names. A directory is packed and sent to
/// the daemon, which may run on another machine; symbolic links and `.git` are skipped. If there are several
/// skills, select which to add. If one of them already exists, none is added.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Directory or zip archive; `-` for an archive on stdin
    path: PathBuf,

    /// Name of the skill, instead of the one in its SKILL.md
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    name: Option<String>,

    /// Add only the skill in this directory below PATH; repeatable
    #[arg(long, value_name = "SUBDIR", conflicts_with = "all")]
    select: Vec<String>,

    /// Add all skills
    #[arg(long)]
    all: bool,

    /// List the skills without adding them
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let mut archive = archive(args)?;
    if args.dry_run || args.all {
        let intake = client.preview_skills(&archive).await.map_err(refused)?;
        if args.dry_run {
            return output.table_or(&intake, || table(&intake.planned));
        }
        archive.source_paths = intake
            .planned
            .into_iter()
            .map(|found| found.source_path)
            .collect();
    }
    let intake = client.install_skills(&archive).await.map_err(|error| {
        let several = error.to_string().starts_with("Multiple skills found");
        let failure = refused(error);
        if several {
            failure.hint("`--select SUBDIR` adds one, `--all` adds all, `--dry-run` lists them")
        } else {
            failure
        }
    })?;
    if output.is_json() {
        return Output::json(&intake);
    }
    for skill in &intake.installed {
        Output::line(&printable(&skill.name))?;
        print_warnings(&skill.name, &skill.warnings);
    }
    Ok(())
}

fn table(planned: &[PlannedSkill]) -> Table {
    let mut table = Table::new(&["NAME", "SUBDIR", "WARNINGS", "DESCRIPTION"]);
    for found in planned {
        let subdir = if found.source_path.is_empty() {
            "."
        } else {
            &found.source_path
        };
        table.row([
            found.name.as_str().into(),
            subdir.into(),
            found.warnings.len().to_string().into(),
            super::view::shortened(&found.description).into(),
        ]);
    }
    table
}

fn archive(args: &Args) -> Outcome<SkillArchive> {
    let path = &args.path;
    let (name, bytes) = if path == Path::new("-") {
        ("skill".to_owned(), input::read(path, MAX_BYTES)?)
    } else {
        let name = own_name(path)?;
        let bytes = if path.is_dir() {
            let progress = Progress::new();
            let bytes = pack(path, &name, &progress);
            progress.finish();
            bytes?
        } else {
            input::read(path, MAX_BYTES)?
        };
        (name, bytes)
    };
    Ok(SkillArchive {
        bytes: bytes.into(),
        filename: format!("{name}.zip"),
        source_paths: args.select.clone(),
        name: args.name.clone(),
        ..SkillArchive::default()
    })
}

/// The name of the directory or archive, also for `.`.
fn own_name(path: &Path) -> Outcome<String> {
    let real = std::fs::canonicalize(path).map_err(|error| Failure::unreadable(path, error))?;
    // The name that was typed, if there is one: a link has its own name.
    let named = path.file_name().map_or(real.as_path(), |_| path);
    let stem = if real.is_dir() {
        named.file_name()
    } else {
        named.file_stem()
    };
    let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
    Ok(stem
        .filter(|stem| !stem.is_empty())
        .unwrap_or_else(|| "skill".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_named_like_the_path_on_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let skill = dir.path().join("pdf.tools");
        std::fs::create_dir(&skill).unwrap();
        assert_eq!(own_name(&skill).unwrap(), "pdf.tools");
        assert_eq!(own_name(&skill.join(".")).unwrap(), "pdf.tools");
        assert_eq!(own_name(&skill.join("../pdf.tools/")).unwrap(), "pdf.tools");
        let file = dir.path().join("csv.v2.zip");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(own_name(&file).unwrap(), "csv.v2");
        assert!(own_name(&dir.path().join("nope")).is_err());
    }
}
