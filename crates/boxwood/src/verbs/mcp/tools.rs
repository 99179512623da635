//! `boxwood mcp tools`.

use boxwood_api::{McpServerName, McpStatus, McpToolInfo};
use boxwood_client::Client;
use serde_json::Value;

use super::{refused, server_name};
use crate::failure::{EXIT_ERROR, Outcome};
use crate::output::Output;
use crate::printable::printable;
use crate::table::Table;
use crate::verbs::wire_word;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp tools time
  boxwood mcp tools time -q             Names only, one per line
  boxwood mcp tools time -o json        With their schemas";

/// List a server's tools, as clients see them
///
/// Tools that its filter keeps back are not there. Ends with 1 when the server has failed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the server
    #[arg(value_parser = server_name)]
    name: McpServerName,

    /// Names only, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let server = client.mcp_server(&args.name).await.map_err(refused)?;
    let runtime = server.runtime;
    if output.is_json() {
        Output::json(&runtime.tools)?;
    } else if args.quiet {
        for tool in &runtime.tools {
            Output::line(&printable(&tool.name))?;
        }
    } else if !runtime.tools.is_empty() {
        output.table(&table(&runtime.tools))?;
    }
    if runtime.status == McpStatus::Connected || !runtime.tools.is_empty() {
        return Ok(0);
    }
    let status = wire_word(&runtime.status);
    eprintln!(
        "boxwood: `{}` is {status}, so its tools are not known",
        args.name
    );
    if let Some(message) = &runtime.error_message {
        eprintln!("  {}", printable(message));
    }
    eprintln!("hint: `boxwood mcp start {}` starts it", args.name);
    Ok(EXIT_ERROR)
}

fn table(tools: &[McpToolInfo]) -> Table {
    let mut table = Table::new(&["NAME", "ARGUMENTS", "WHAT IT IS FOR"]);
    for tool in tools {
        let about = tool.description.trim().lines().next().unwrap_or_default();
        table.row([
            tool.name.as_str().into(),
            arguments(&tool.parameters).into(),
            about.into(),
        ]);
    }
    table
}

/// Those that may be left out stand in brackets.
fn arguments(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema["properties"].as_object();
    let optional = properties
        .into_iter()
        .flat_map(|properties| properties.keys())
        .filter(|name| !required.contains(&name.as_str()))
        .map(|name| format!("[{name}]"));
    let required = required.iter().map(|&name| name.to_owned());
    required.chain(optional).collect::<Vec<_>>().join(" ")
}
