//! `boxwood tool`: lists and calls the agent tools of the daemon.

use std::path::Path;

use boxwood_api::{AgentQuery, ErrorCode, ToolAnswer, ToolCall};
use boxwood_client::Client;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::input;
use crate::output::Output;
use crate::output::printable::printable;
use crate::output::table::Table;

const EXAMPLES: &str = "\
Examples:
  boxwood tool ls
  boxwood tool call exec '{\"command\": \"python3 -c \\\"print(6 * 7)\\\"\"}'
  boxwood tool call read '{\"path\": \"/workspace/out.txt\"}' -o json
  boxwood tool call grep '{\"pattern\": \"TODO\"}' --query '{\"launcher_id\": \"room-1\"}'";

/// List and call the agent tools
///
/// These are the tools that platforms call over HTTP and agents over MCP. A tool runs in the box of a
/// conversation, which `--query` selects.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Ls(Ls),
    Call(Call),
}

const LS_EXAMPLES: &str = "\
Examples:
  boxwood tool ls
  boxwood tool ls -q                    Only names
  boxwood tool ls -o json               With schemas
  boxwood tool ls --openai              In the format of OpenAI's function calling";

/// List tools
///
/// If the tools cannot be used now, prints the reason and exits with 1.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = LS_EXAMPLES)]
struct Ls {
    /// Print only names, one per line
    #[arg(short, long, conflicts_with = "openai")]
    quiet: bool,

    /// Print the list for OpenAI's function calling, as JSON
    #[arg(long)]
    openai: bool,
}

const CALL_EXAMPLES: &str = "\
Examples:
  boxwood tool call exec '{\"command\": \"make test\", \"timeout_sec\": 60}'
  boxwood tool call write '{\"path\": \"/workspace/a.txt\", \"content\": \"hello\"}'
  boxwood tool call exec - < arguments.json
  boxwood tool call exec '{\"command\": \"pwd\"}' --query '{\"launcher_id\": \"room-1\"}'
  boxwood tool call exec '{\"command\": \"pwd\"}' -o json | jq -r .result.stdout";

/// Call a tool
///
/// Exits with 0 if the operation succeeded, and with 1 if it failed or was refused. Ctrl-C cancels the call
/// and kills its command.
#[derive(Debug, clap::Args)]
#[command(after_help = CALL_EXAMPLES)]
struct Call {
    /// Name of the tool; `boxwood tool ls` lists them
    name: String,

    /// Arguments as a JSON object; `-` reads them from stdin
    #[arg(default_value = "{}")]
    arguments: String,

    /// Conversation, as a JSON object with the optional fields `query_id`, `launcher_type`, `launcher_id`,
    /// `sender_id`, `variables` and `pipeline`
    #[arg(long, value_name = "JSON", default_value = "{}")]
    query: String,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    match &args.action {
        Action::Ls(args) => ls(args, client, output).await,
        Action::Call(args) => call(args, client, output).await,
    }
}

async fn ls(args: &Ls, client: &Client, output: Output) -> Outcome<u8> {
    let list = client.tools().await?;
    if args.openai {
        Output::json(&list.openai)?;
    } else if output.is_json() {
        Output::json(&list)?;
    } else if args.quiet {
        Output::names(list.tools.iter().map(|tool| tool.name.as_str()))?;
    } else if list.unavailable.is_none() {
        let mut table = Table::new(&["NAME", "ARGUMENTS", "DESCRIPTION"]);
        for tool in &list.tools {
            table.row([
                tool.name.as_str().into(),
                arguments(&tool.input_schema).into(),
                tool.title.as_str().into(),
            ]);
        }
        output.table(&table)?;
    }
    let Some(unavailable) = &list.unavailable else {
        return Ok(0);
    };
    eprintln!("boxwood: {}", printable(&unavailable.reason));
    eprintln!("hint: {}", printable(&unavailable.fix));
    Ok(EXIT_ERROR)
}

/// The names of the arguments in a JSON schema, optional ones in brackets.
pub(super) fn arguments(schema: &Value) -> String {
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let optional = properties
        .filter(|(name, _)| !required.contains(&name.as_str()))
        .map(|(name, _)| format!("[{name}]"));
    let required = required.iter().map(|&name| name.to_owned());
    required.chain(optional).collect::<Vec<_>>().join(" ")
}

async fn call(args: &Call, client: &Client, output: Output) -> Outcome<u8> {
    // The daemon has a lower limit.
    const MAX_BYTES: u64 = 1 << 30;
    let arguments = match args.arguments.as_str() {
        "-" => &input::read_text(Path::new("-"), MAX_BYTES)?,
        text => text,
    };
    let call = ToolCall {
        arguments: parsed("the arguments", arguments)?,
        query: parsed::<AgentQuery>("--query", &args.query)?,
    };
    let answer = client.call_tool(&args.name, &call).await;
    let answer = answer.map_err(|error| {
        let hint = "`boxwood tool ls` shows the tools";
        Failure::from(error).hint_for(ErrorCode::NotFound, hint)
    })?;
    if output.is_json() {
        Output::json(&answer)?;
    } else {
        show(&answer, output)?;
    }
    let failed = answer.result.get("ok") == Some(&Value::Bool(false));
    Ok(if failed { EXIT_ERROR } else { 0 })
}

fn parsed<T: DeserializeOwned>(name: &str, text: &str) -> Outcome<T> {
    // First as an object, because derived types also accept arrays, field by field.
    let object: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("{name} must be a JSON object: {error}"))
            .hint("put it in single quotes: '{\"command\": \"ls\"}'")
    })?;
    serde_json::from_value(Value::Object(object))
        .map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// Prints short values in a table, and long text below it.
fn show(answer: &ToolAnswer, output: Output) -> Outcome<()> {
    let mut facts = Vec::new();
    let mut texts = Vec::new();
    for (name, value) in &answer.result {
        match value {
            Value::String(text) if text.trim_end().contains('\n') => texts.push((name, text)),
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => facts.push((name, text.trim_end().to_owned())),
            other => facts.push((name, other.to_string())),
        }
    }
    let mut table = Table::of_facts();
    for (name, value) in &facts {
        table.fact(name, value);
    }
    output.table(&table)?;
    for (name, text) in texts {
        Output::line(&format!("\n{}:", printable(name)))?;
        Output::text(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn optional_arguments_are_in_brackets() {
        let schema = json!({
            "properties": {"include": {}, "path": {}, "pattern": {}},
            "required": ["pattern"],
        });
        assert_eq!(arguments(&schema), "pattern [include] [path]");
    }

    #[test]
    fn only_objects_are_arguments() {
        for wrong in ["", "[]", "7", "{", "\"x\""] {
            assert!(parsed::<Map<String, Value>>("the arguments", wrong).is_err());
        }
        assert!(parsed::<AgentQuery>("--query", "{\"launcher\": 1}").is_err());
        let query: AgentQuery = parsed("--query", "{\"launcher_id\": 7}").expect("fine");
        assert_eq!(query.launcher_id, Some(Value::from(7)));
    }
}
