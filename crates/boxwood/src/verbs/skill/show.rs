//! `boxwood skill show`.

use boxwood_api::SkillDetail;
use boxwood_client::Client;

use super::{print_text, refused};
use crate::failure::Outcome;
use crate::output::Output;
use crate::table::{Cell, Table, Tone};
use crate::verbs::ago;

const EXAMPLES: &str = "\
Examples:
  boxwood skill show pdf
  boxwood skill show pdf -o json | jq -r .instructions";

/// Show a skill with its instructions
///
/// Also says where it departs from the Agent Skills rules. Departures are warnings: the skill works.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the skill
    name: String,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let detail = client.skill(&args.name).await.map_err(refused)?;
    if output.is_json() {
        return Output::json(&detail);
    }
    output.table(&table(&detail))?;
    if !detail.instructions.trim().is_empty() {
        Output::line("")?;
        print_text(&detail.instructions)?;
    }
    Ok(())
}

fn table(detail: &SkillDetail) -> Table {
    let skill = &detail.skill;
    let mut table = Table::of_facts();
    table.fact("name", &skill.name);
    if skill.display_name != skill.name {
        table.fact("display name", &skill.display_name);
    }
    for line in skill.description.lines() {
        table.fact("description", line);
    }
    table.fact("entry file", &detail.entry_file);
    table.fact(
        "updated",
        format!("{} ({})", skill.updated_at, ago(skill.updated_at)),
    );
    for warning in &skill.warnings {
        table.row([
            Cell::toned("warning", Tone::Warning),
            warning.message.as_str().into(),
        ]);
    }
    table
}
