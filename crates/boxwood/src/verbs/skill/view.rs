//! `boxwood skill ls`, `show`, `files`, `cat` and `export`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use boxwood_api::{SkillDetail, SkillFileList, SkillList};
use boxwood_client::{Client, Download};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::refused;
use crate::copy::{Partial, Progress};
use crate::failure::{Failure, Outcome};
use crate::flags::size_text;
use crate::output::printable::{ellipsized, printable};
use crate::output::table::{Cell, Table, Tone};
use crate::output::{Output, ago, time};

/// Width that is left by the other columns.
const DESCRIPTION_COLUMNS: usize = 60;

const LS_EXAMPLES: &str = "\
Examples:
  boxwood skill ls
  boxwood skill ls -q                   Only names
  boxwood skill ls -o json              All details, with warnings and packages that cannot be read";

/// List skills
///
/// The most recently changed skill is listed first. Packages that cannot be read are reported on stderr.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = LS_EXAMPLES)]
pub(super) struct Ls {
    /// Print only names, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn ls(args: &Ls, client: &Client, output: Output) -> Outcome<()> {
    let list = client.skills().await?;
    if output.is_json() {
        return Output::json(&list);
    }
    if args.quiet {
        Output::names(list.skills.iter().map(|skill| skill.name.as_str()))?;
    } else {
        output.table(&list_table(&list))?;
    }
    for problem in &list.problems {
        let (path, why) = (printable(&problem.path), printable(&problem.message));
        eprintln!("boxwood: cannot read `{path}`: {why}");
    }
    Ok(())
}

fn list_table(list: &SkillList) -> Table {
    let mut table = Table::new(&["NAME", "UPDATED", "WARNINGS", "DESCRIPTION"]);
    for skill in &list.skills {
        let warnings = match skill.warnings.len() {
            0 => "-".into(),
            count => Cell::toned(count.to_string(), Tone::Warning),
        };
        table.row([
            skill.name.as_str().into(),
            ago(skill.updated_at).into(),
            warnings,
            shortened(&skill.description).into(),
        ]);
    }
    table
}

pub(super) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ellipsized(&line, DESCRIPTION_COLUMNS).into_owned()
}

const SHOW_EXAMPLES: &str = "\
Examples:
  boxwood skill show pdf
  boxwood skill show pdf -o json | jq -r .instructions";

/// Show a skill with its instructions
///
/// Also lists where it does not follow the Agent Skills rules. The skill can be used nevertheless.
#[derive(Debug, clap::Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(super) struct Show {
    /// Name of the skill
    name: String,
}

pub(super) async fn show(args: &Show, client: &Client, output: Output) -> Outcome<()> {
    let detail = client.skill(&args.name).await.map_err(refused)?;
    if output.is_json() {
        return Output::json(&detail);
    }
    output.table(&facts(&detail))?;
    if !detail.instructions.trim().is_empty() {
        Output::line("")?;
        Output::text(&detail.instructions)?;
    }
    Ok(())
}

fn facts(detail: &SkillDetail) -> Table {
    let skill = &detail.skill;
    let mut table = Table::of_facts();
    table.fact("name", &skill.name);
    if skill.display_name != skill.name {
        table.fact("display name", &skill.display_name);
    }
    table.fact_lines("description", &skill.description);
    table.fact("entry file", &detail.entry_file);
    table.fact("updated", time(skill.updated_at));
    for warning in &skill.warnings {
        let name = Cell::toned("warning", Tone::Warning);
        table.row([name, warning.message.as_str().into()]);
    }
    table
}

const FILES_EXAMPLES: &str = "\
Examples:
  boxwood skill files pdf
  boxwood skill files pdf scripts
  boxwood skill files -a pdf            Include hidden files";

/// List the files of a skill
///
/// Lists one directory of the package. Names of directories end with `/`.
#[derive(Debug, clap::Args)]
#[command(after_help = FILES_EXAMPLES)]
pub(super) struct Files {
    /// Name of the skill
    name: String,

    /// Directory of the package
    #[arg(default_value = ".")]
    path: String,

    /// Include entries whose name begins with a dot
    #[arg(short, long)]
    all: bool,
}

pub(super) async fn files(args: &Files, client: &Client, output: Output) -> Outcome<()> {
    let list = client.skill_files(&args.name, &args.path, args.all).await;
    let list = list.map_err(refused)?;
    output.table_or(&list, || files_table(&list))?;
    if list.truncated && !output.is_json() {
        eprintln!("boxwood: the list is incomplete: there are too many files");
    }
    Ok(())
}

fn files_table(list: &SkillFileList) -> Table {
    let mut table = Table::new(&["PATH", "SIZE", "KIND"]);
    for entry in &list.entries {
        let (slash, kind) = match (entry.is_dir, entry.is_symlink, entry.executable) {
            (_, true, _) => ("", Cell::toned("link", Tone::Faint)),
            (true, ..) => ("/", "directory".into()),
            (false, _, true) => ("", "program".into()),
            (false, _, false) => ("", "file".into()),
        };
        table.row([
            format!("{}{slash}", entry.path).into(),
            entry.size.map_or_else(|| "-".to_owned(), size_text).into(),
            kind,
        ]);
    }
    table
}

const CAT_EXAMPLES: &str = "\
Examples:
  boxwood skill cat pdf SKILL.md
  boxwood skill cat pdf assets/logo.png > logo.png";

/// Print a file of a skill
///
/// Writes the content to stdout unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = CAT_EXAMPLES)]
pub(super) struct Cat {
    /// Name of the skill
    name: String,

    /// Path of the file in the package
    file: String,
}

pub(super) async fn cat(args: &Cat, client: &Client) -> Outcome<()> {
    let download = client.read_skill_file(&args.name, &args.file).await;
    to_stdout(download.map_err(refused)?).await
}

async fn to_stdout(mut download: Download) -> Outcome<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(chunk) = download.chunk().await? {
        stdout.write_all(&chunk).await?;
    }
    Ok(stdout.flush().await?)
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  boxwood skill export pdf pdf.zip
  boxwood skill export pdf > pdf.zip
  boxwood skill export pdf - | ssh other boxwood skill add - --name pdf";

/// Export a skill as a zip archive
///
/// The archive can be imported with `boxwood skill add`. The file is created when the download is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(super) struct Export {
    /// Name of the skill
    name: String,

    /// File to write; `-` or none for stdout
    file: Option<PathBuf>,
}

pub(super) async fn export(args: &Export, client: &Client, output: Output) -> Outcome<()> {
    if args.file.is_none() && std::io::stdout().is_terminal() {
        return Err(Failure::usage("an archive cannot be written to a terminal")
            .hint("name a file, as in `boxwood skill export pdf pdf.zip`"));
    }
    let mut download = client.export_skill(&args.name).await.map_err(refused)?;
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let Some(file) = file else {
        return to_stdout(download).await;
    };
    let progress = Progress::new();
    let mut partial = Partial::beside(file)?;
    while let Some(chunk) = download.chunk().await? {
        partial.write(file, &chunk).await?;
        progress.add_bytes(chunk.len());
    }
    partial.complete(file, 0o644).await?;
    let exported = json!({"file": file, "bytes": progress.finish().bytes});
    output.name_or(&exported, &file.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_description_takes_one_line() {
        assert_eq!(shortened("a\nb   c"), "a b c");
        let long = shortened(&"字".repeat(100));
        assert_eq!(long.chars().count(), DESCRIPTION_COLUMNS / 2);
        assert!(long.ends_with('…'));
    }
}
