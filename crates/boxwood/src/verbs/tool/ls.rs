//! `boxwood tool ls`.

use boxwood_api::{ToolInfo, ToolList, Unavailable};
use boxwood_client::Client;
use serde_json::Value;

use crate::failure::{EXIT_ERROR, Outcome};
use crate::output::Output;
use crate::printable::printable;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  boxwood tool ls
  boxwood tool ls -q                    Names only, one per line
  boxwood tool ls -o json               With their schemas
  boxwood tool ls --openai              As OpenAI's function calling takes them, to paste";

/// List tools
///
/// Where they cannot be used now, says why, and ends with 1.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = EXAMPLES)]
pub(super) struct Args {
    /// Names only, one per line
    #[arg(short, long, conflicts_with = "openai")]
    quiet: bool,

    /// The list that OpenAI's function calling takes, as JSON
    #[arg(long)]
    openai: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let list = client.tools().await?;
    if args.openai {
        Output::json(&list.openai)?;
    } else if output.is_json() {
        Output::json(&list)?;
    } else if args.quiet {
        for tool in &list.tools {
            Output::line(&printable(&tool.name))?;
        }
    } else if list.unavailable.is_none() {
        output.table(&table(&list))?;
    }
    match &list.unavailable {
        None => Ok(0),
        Some(why) => {
            tell(why);
            Ok(EXIT_ERROR)
        }
    }
}

fn tell(why: &Unavailable) {
    eprintln!("boxwood: {}", printable(&why.reason));
    eprintln!("hint: {}", printable(&why.fix));
}

fn table(list: &ToolList) -> Table {
    let mut table = Table::new(&["NAME", "ARGUMENTS", "WHAT IT IS FOR"]);
    for tool in &list.tools {
        table.row([
            tool.name.as_str().into(),
            arguments(tool).into(),
            tool.title.as_str().into(),
        ]);
    }
    table
}

/// Those that may be left out stand in brackets.
fn arguments(tool: &ToolInfo) -> String {
    let required: Vec<&str> = tool.input_schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = tool.input_schema["properties"].as_object();
    let optional = properties
        .into_iter()
        .flat_map(|properties| properties.keys())
        .filter(|name| !required.contains(&name.as_str()))
        .map(|name| format!("[{name}]"));
    let required = required.iter().map(|&name| name.to_owned());
    required.chain(optional).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use boxwood_api::ToolAnnotations;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_may_be_left_out_stands_in_brackets() {
        let tool = ToolInfo {
            name: "grep".to_owned(),
            title: "Search".to_owned(),
            description: String::new(),
            input_schema: json!({
                "properties": {"include": {}, "path": {}, "pattern": {}},
                "required": ["pattern"],
            }),
            output_schema: json!({}),
            annotations: ToolAnnotations {
                read_only: true,
                destructive: false,
                idempotent: true,
                open_world: false,
            },
        };
        assert_eq!(arguments(&tool), "pattern [include] [path]");
    }
}
