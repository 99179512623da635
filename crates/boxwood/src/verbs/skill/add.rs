//! `boxwood skill add`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use boxwood_api::{PlannedSkill, SkillIntake};
use boxwood_client::{Client, SkillArchive};

use super::pack::pack;
use super::{print_warnings, refused};
use crate::copy::Progress;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;
use crate::table::Table;

/// More than any store takes unless its operator meant it.
const MOST_BYTES: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  boxwood skill add ./pdf                       A directory with a SKILL.md
  boxwood skill add pdf.zip                     An archive of one
  boxwood skill add ./skills --dry-run          What is in it
  boxwood skill add ./skills --select pdf --select office/csv
  boxwood skill add ./skills --all
  boxwood skill add ./pdf --name pdf-next       Under another name
  curl -sL https://example.org/pdf.zip | boxwood skill add - --name pdf";

/// Put skills into the daemon's store
///
/// Takes a directory or a zip archive and prints the names of the skills that are now in the store.
/// A directory is packed here and sent, so the daemon may be on another machine; symbolic links and
/// `.git` stay behind. Where there are several skills, say which are meant. It is all or nothing: one
/// whose name is taken keeps the others out as well.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Directory or zip archive; `-` is an archive on stdin
    path: PathBuf,

    /// What the skill shall be called, instead of what its SKILL.md says
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    name: Option<String>,

    /// Take this one, by its directory below PATH; repeatable
    #[arg(long, value_name = "SUBDIR", conflicts_with = "all")]
    select: Vec<String>,

    /// Take every skill there is
    #[arg(long)]
    all: bool,

    /// Only say what is there
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
            failure
                .hint("`--select SUBDIR` takes one, `--all` takes them all, `--dry-run` lists them")
        } else {
            failure
        }
    })?;
    tell(&intake, output)
}

fn tell(intake: &SkillIntake, output: Output) -> Outcome<()> {
    if output.is_json() {
        return Output::json(intake);
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
        let place = if found.source_path.is_empty() {
            "."
        } else {
            &found.source_path
        };
        table.row([
            found.name.as_str().into(),
            place.into(),
            found.warnings.len().to_string().into(),
            super::ls::shortened(&found.description).into(),
        ]);
    }
    table
}

fn archive(args: &Args) -> Outcome<SkillArchive> {
    let unreadable = |error| {
        Failure::local(
            format!("`{}` could not be read", args.path.display()),
            error,
        )
    };
    let (name, bytes) = if args.path == Path::new("-") {
        let stdin = std::io::stdin().lock();
        ("skill".to_owned(), bounded(stdin).map_err(unreadable)?)
    } else {
        let metadata = std::fs::metadata(&args.path).map_err(unreadable)?;
        let name = own_name(&args.path)?;
        if metadata.is_dir() {
            let progress = Progress::new();
            let bytes = pack(&args.path, &name, &progress);
            progress.finish();
            (name, bytes?)
        } else {
            let file = std::fs::File::open(&args.path).map_err(unreadable)?;
            (name, bounded(file).map_err(unreadable)?)
        }
    };
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Failure::usage("the archive is larger than any skill"));
    }
    Ok(SkillArchive {
        bytes: bytes.into(),
        filename: format!("{name}.zip"),
        source_paths: args.select.clone(),
        name: args.name.clone(),
        ..SkillArchive::default()
    })
}

/// One byte more than is allowed tells too much from just enough.
fn bounded(reader: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the directory or the archive is called, also for `.`.
fn own_name(path: &Path) -> Outcome<String> {
    let real = std::fs::canonicalize(path).map_err(|error| {
        Failure::local(format!("`{}` could not be read", path.display()), error)
    })?;
    // The name that was typed, where it is one: a link has a name of its own.
    let named = if path.file_name().is_some() {
        path
    } else {
        &real
    };
    let stem = if real.is_dir() {
        named.file_name()
    } else {
        named.file_stem()
    };
    Ok(stem
        .map(|stem| stem.to_string_lossy().into_owned())
        .filter(|stem| !stem.is_empty())
        .unwrap_or_else(|| "skill".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_called_what_the_person_calls_it() {
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
