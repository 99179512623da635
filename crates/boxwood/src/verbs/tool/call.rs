//! `boxwood tool call`.

use std::io::Read as _;

use boxwood_api::{AgentQuery, ErrorCode, ToolAnswer, ToolCall};
use boxwood_client::{Client, ClientError};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;
use crate::table::{Cell, Table, Tone};

const EXAMPLES: &str = "\
Examples:
  boxwood tool call exec '{\"command\": \"make test\", \"timeout_sec\": 60}'
  boxwood tool call write '{\"path\": \"/workspace/a.txt\", \"content\": \"hello\"}'
  boxwood tool call exec - < arguments.json
  boxwood tool call exec '{\"command\": \"pwd\"}' --query '{\"launcher_id\": \"room-1\"}'
  boxwood tool call exec '{\"command\": \"pwd\"}' -o json | jq -r .result.stdout";

/// Call a tool
///
/// Ends with 0 when the operation succeeded, and with 1 when it did not or was refused. Interrupting it
/// kills the command that the tool runs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the tool; `boxwood tool ls` shows them
    name: String,

    /// The arguments as a JSON object; `-` reads it from standard input
    #[arg(default_value = "{}")]
    arguments: String,

    /// The conversation, as a JSON object with `query_id`, `launcher_type`, `launcher_id`, `sender_id`,
    /// `variables` and `pipeline`, each of which may be left out
    #[arg(long, value_name = "JSON", default_value = "{}")]
    query: String,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let call = ToolCall {
        arguments: parsed("the arguments", &given(&args.arguments)?)?,
        query: parsed::<AgentQuery>("--query", &args.query)?,
    };
    let answer = client.call_tool(&args.name, &call).await.map_err(refused)?;
    if output.is_json() {
        Output::json(&answer)?;
    } else {
        show(&answer, output)?;
    }
    let failed = answer.result.get("ok") == Some(&Value::Bool(false));
    Ok(if failed { EXIT_ERROR } else { 0 })
}

fn given(text: &str) -> Outcome<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::local("standard input could not be read", error))?;
    Ok(text)
}

fn parsed<T: DeserializeOwned>(what: &str, text: &str) -> Outcome<T> {
    // Derived types also read arrays, field by field; people do not mean that.
    let object: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("{what} must be a JSON object: {error}"))
            .hint("put it in single quotes: '{\"command\": \"ls\"}'")
    })?;
    serde_json::from_value(Value::Object(object))
        .map_err(|error| Failure::usage(format!("{what}: {error}")))
}

/// The next step in the words of this command.
fn refused(error: ClientError) -> Failure {
    let hint = match &error {
        ClientError::Refused {
            code: ErrorCode::NotFound,
            hint: None,
            ..
        } => Some("`boxwood tool ls` shows the tools"),
        _ => None,
    };
    Failure::from(error).maybe_hint(hint.map(str::to_owned))
}

fn faint(name: &str) -> Cell {
    Cell::toned(name, Tone::Faint)
}

/// Short values in a table, long text below it.
fn show(answer: &ToolAnswer, output: Output) -> Outcome<()> {
    let mut facts = Table::of_facts();
    let mut texts = Vec::new();
    for (name, value) in &answer.result {
        match value {
            Value::String(text) if text.is_empty() => {}
            Value::String(text) if text.trim_end().contains('\n') => texts.push((name, text)),
            Value::String(text) => facts.row([faint(name), text.trim_end().into()]),
            other => facts.row([faint(name), other.to_string().into()]),
        }
    }
    output.table(&facts)?;
    for (name, text) in texts {
        Output::line("")?;
        Output::line(&format!("{}:", printable(name)))?;
        for line in text.lines() {
            let columns: Vec<_> = line.split('\t').map(printable).collect();
            Output::line(&columns.join("\t"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
