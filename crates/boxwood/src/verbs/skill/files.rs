//! `boxwood skill files`.

use boxwood_api::SkillFileList;
use boxwood_client::Client;

use super::refused;
use crate::failure::Outcome;
use crate::flags::size_text;
use crate::output::Output;
use crate::table::{Cell, Table, Tone};

const EXAMPLES: &str = "\
Examples:
  boxwood skill files pdf
  boxwood skill files pdf scripts
  boxwood skill files -a pdf            Hidden ones as well";

/// List the files of a skill
///
/// One directory of the package at a time; a name with `/` at its end is a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the skill
    name: String,

    /// Directory of the package
    #[arg(default_value = ".")]
    path: String,

    /// Entries whose name begins with a dot as well
    #[arg(short, long)]
    all: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let list = client
        .skill_files(&args.name, &args.path, args.all)
        .await
        .map_err(refused)?;
    output.table_or(&list, || table(&list))?;
    if list.truncated && !output.is_json() {
        eprintln!("boxwood: there may be more files than are shown");
    }
    Ok(())
}

fn table(list: &SkillFileList) -> Table {
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
