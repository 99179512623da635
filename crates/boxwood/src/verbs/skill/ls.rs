//! `boxwood skill ls`.

use boxwood_api::{SkillInfo, SkillList};
use boxwood_client::Client;

use crate::failure::Outcome;
use crate::output::Output;
use crate::printable::{ellipsized, printable};
use crate::table::{Cell, Table, Tone};
use crate::verbs::ago;

/// What fits beside the other columns.
const DESCRIPTION_COLUMNS: usize = 60;

const EXAMPLES: &str = "\
Examples:
  boxwood skill ls
  boxwood skill ls -q                   Names only, one per line
  boxwood skill ls -o json              Everything, with warnings and what cannot be read";

/// List skills
///
/// The one changed last comes first. Packages that cannot be read are told on stderr.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = EXAMPLES)]
pub(super) struct Args {
    /// Names only, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let list = client.skills().await?;
    if output.is_json() {
        return Output::json(&list);
    }
    if args.quiet {
        for skill in &list.skills {
            Output::line(&printable(&skill.name))?;
        }
    } else {
        output.table(&table(&list))?;
    }
    for problem in &list.problems {
        eprintln!(
            "boxwood: `{}` cannot be read: {}",
            printable(&problem.path),
            printable(&problem.message)
        );
    }
    Ok(())
}

fn table(list: &SkillList) -> Table {
    let mut table = Table::new(&["NAME", "UPDATED", "WARNINGS", "DESCRIPTION"]);
    for skill in &list.skills {
        table.row([
            skill.name.as_str().into(),
            ago(skill.updated_at).into(),
            warnings(skill),
            shortened(&skill.description).into(),
        ]);
    }
    table
}

fn warnings(skill: &SkillInfo) -> Cell {
    match skill.warnings.len() {
        0 => "-".into(),
        count => Cell::toned(count.to_string(), Tone::Warning),
    }
}

pub(super) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ellipsized(&line, DESCRIPTION_COLUMNS).into_owned()
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
