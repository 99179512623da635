//! `boxwood mcp tools` and `call`.

use std::path::Path;

use boxwood_api::{CallMcpToolRequest, McpServerName, McpStatus, McpToolInfo};
use boxwood_client::Client;
use serde_json::{Map, Value};

use super::refused;
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::input;
use crate::output::printable::{printable, printable_line};
use crate::output::table::Table;
use crate::output::{Output, wire_word};
use crate::verbs::tool::arguments;

const CALL_EXAMPLES: &str = "\
Examples:
  boxwood mcp call time get_current_time timezone=Europe/Paris
  boxwood mcp call memory search_nodes '{\"query\": \"boxes\"}'
  boxwood mcp call files write_file - < arguments.json
  boxwood mcp call everything get-sum a=1 b=2 -o json | jq .content

The value of `key=value` is text or JSON, depending on the schema of the tool.";

/// Limit of the arguments on stdin.
const MAX_BYTES: u64 = 64 << 20;

/// Call a tool of a server
///
/// Prints the result of the tool, and exits with 1 if the tool reports a failure. A server that was stopped
/// because it was idle is started. Ctrl-C cancels the call.
#[derive(Debug, clap::Args)]
#[command(after_help = CALL_EXAMPLES)]
pub(super) struct Call {
    /// Name of the server
    name: McpServerName,

    /// Name of the tool; `boxwood mcp tools NAME` lists them
    tool: String,

    /// Arguments: a JSON object, `-` to read it from stdin, or `key=value` for each
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

pub(super) async fn call(args: &Call, client: &Client, output: Output) -> Outcome<u8> {
    let arguments = match args.arguments.as_slice() {
        [] => Map::new(),
        [one] if one == "-" => object(&input::read_text(Path::new("-"), MAX_BYTES)?)?,
        [one] if one.trim_start().starts_with('{') => object(one)?,
        pairs => {
            // Without a schema, values that are valid JSON are sent as JSON.
            let tools = client.mcp_tools(&args.name).await.unwrap_or_default();
            let tool = tools.iter().find(|tool| tool.name == args.tool);
            read_pairs(pairs, tool)?
        }
    };
    let request = CallMcpToolRequest { arguments };
    let result = client
        .call_mcp_tool(&args.name, &args.tool, &request)
        .await
        .map_err(refused)?;
    let failed = result["isError"] == Value::Bool(true);
    let text = text_of(&result);
    if output.is_json() {
        Output::json(&result)?;
    } else if !failed {
        Output::text(&text)?;
    } else if text.is_empty() {
        eprintln!("boxwood: the tool failed without a message");
    } else {
        let lines = text.lines().map(printable_line);
        lines.for_each(|line| eprintln!("{line}"));
    }
    Ok(if failed { EXIT_ERROR } else { 0 })
}

fn object(text: &str) -> Outcome<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("the arguments must be a JSON object: {error}"))
            .hint("put it in single quotes: '{\"key\": \"value\"}'; or write key=value")
    })
}

fn read_pairs(pairs: &[String], tool: Option<&McpToolInfo>) -> Outcome<Map<String, Value>> {
    let mut arguments = Map::new();
    for pair in pairs {
        let Some((key, text)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::usage(format!("`{pair}` is not `key=value`"))
                .hint("give one JSON object in single quotes, or `key=value` for each argument"));
        };
        let schema = tool.map(|tool| &tool.parameters["properties"][key]);
        if arguments
            .insert(key.to_owned(), value(text, schema))
            .is_some()
        {
            return Err(Failure::usage(format!("`{key}` is given twice")));
        }
    }
    Ok(arguments)
}

/// Text if the schema expects text; otherwise JSON if it is valid.
fn value(text: &str, schema: Option<&Value>) -> Value {
    let expects = |kind: &str| {
        schema.is_some_and(|schema| match &schema["type"] {
            Value::String(only) => only == kind,
            Value::Array(several) => several.iter().any(|one| one == kind),
            _ => false,
        })
    };
    let plain = || Value::String(text.to_owned());
    match serde_json::from_str::<Value>(text) {
        Err(_) => plain(),
        Ok(number @ Value::Number(_)) if expects("number") || expects("integer") => number,
        // Text that looks like a number may be a version.
        Ok(_) if expects("string") => plain(),
        Ok(json) => json,
    }
}

/// Text as it is, and the kind and size of other content.
fn text_of(result: &Value) -> String {
    let blocks = result["content"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut parts: Vec<String> = blocks.iter().map(block).collect();
    if parts.is_empty()
        && let Some(structured) = result.get("structuredContent")
    {
        parts.push(serde_json::to_string_pretty(structured).unwrap_or_default());
    }
    parts.join("\n")
}

fn block(block: &Value) -> String {
    let text = |field: &str| block[field].as_str().unwrap_or_default();
    match text("type") {
        "text" => text("text").to_owned(),
        kind @ ("image" | "audio") => {
            // Four characters of base64 encode three bytes.
            let bytes = text("data").len() / 4 * 3;
            format!(
                "[{kind} {}, about {bytes} bytes; use -o json to see it]",
                text("mimeType")
            )
        }
        "resource_link" => format!("[{} {}]", text("name"), text("uri")),
        "resource" => {
            let resource = &block["resource"];
            match resource["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!(
                    "[resource {}; use -o json to see it]",
                    resource["uri"].as_str().unwrap_or_default()
                ),
            }
        }
        kind => format!("[{kind}; use -o json to see it]"),
    }
}

const TOOLS_EXAMPLES: &str = "\
Examples:
  boxwood mcp tools time
  boxwood mcp tools time -q             Only names
  boxwood mcp tools time -o json        With schemas";

/// List the tools of a server
///
/// Tools that the server's filter hides are not listed. Exits with 1 if the server has failed.
#[derive(Debug, clap::Args)]
#[command(after_help = TOOLS_EXAMPLES)]
pub(super) struct Tools {
    /// Name of the server
    name: McpServerName,

    /// Print only names, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn tools(args: &Tools, client: &Client, output: Output) -> Outcome<u8> {
    let server = client.mcp_server(&args.name).await.map_err(refused)?;
    let runtime = server.runtime;
    if output.is_json() {
        Output::json(&runtime.tools)?;
    } else if args.quiet {
        Output::names(runtime.tools.iter().map(|tool| tool.name.as_str()))?;
    } else if !runtime.tools.is_empty() {
        output.table(&tools_table(&runtime.tools))?;
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
        let lines = message.lines().map(printable);
        lines.for_each(|line| eprintln!("  {line}"));
    }
    let name = &args.name;
    let hint = match runtime.status {
        McpStatus::Disabled => format!("`boxwood mcp enable {name}` enables and starts it"),
        McpStatus::Queued | McpStatus::Connecting => {
            format!("try again when `boxwood mcp status {name}` shows it as connected")
        }
        _ => format!("`boxwood mcp start {name}` starts it"),
    };
    eprintln!("hint: {hint}");
    Ok(EXIT_ERROR)
}

fn tools_table(tools: &[McpToolInfo]) -> Table {
    let mut table = Table::new(&["NAME", "ARGUMENTS", "DESCRIPTION"]);
    for tool in tools {
        let summary = tool.description.trim().lines().next().unwrap_or_default();
        table.row([
            tool.name.as_str().into(),
            arguments(&tool.parameters).into(),
            summary.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool() -> McpToolInfo {
        McpToolInfo {
            name: "t".to_owned(),
            description: String::new(),
            parameters: json!({"properties": {
                "text": {"type": "string"}, "count": {"type": "integer"}, "flag": {"type": "boolean"},
                "list": {"type": "array"}, "either": {"type": ["string", "number"]}, "any": {},
            }}),
        }
    }

    #[track_caller]
    fn check(pair: &str, expected: &Value) {
        let read =
            read_pairs(&[pair.to_owned()], Some(&tool())).unwrap_or_else(|it| panic!("{it:?}"));
        let (_, value) = read.into_iter().next().expect("one");
        assert_eq!(&value, expected, "for {pair}");
    }

    #[test]
    fn values_have_the_types_of_the_schema() {
        check("text=1.10", &json!("1.10"));
        check("text=true", &json!("true"));
        check("text={\"a\": 1}", &json!("{\"a\": 1}"));
        check("text=a=b", &json!("a=b"));
        check("text=\"quoted\"", &json!("\"quoted\""));
        check("count=3", &json!(3));
        check("flag=true", &json!(true));
        check("list=[1,2]", &json!([1, 2]));
        check("either=7", &json!(7));
        check("either=seven", &json!("seven"));
        check("any=3", &json!(3));
        check("unknown=null", &json!(null));
        check("count=", &json!(""));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for wrong in ["a", "=b", ""] {
            assert!(read_pairs(&[wrong.to_owned()], None).is_err(), "{wrong}");
        }
        let twice = ["a=1", "a=2"].map(str::to_owned);
        assert!(read_pairs(&twice, None).is_err());
        for wrong in ["[]", "{", "7"] {
            assert!(object(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_is_printed_and_other_content_is_described() {
        let result = json!({"content": [
            {"type": "text", "text": "one\ntwo"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"},
            {"type": "resource", "resource": {"uri": "a://b", "text": "inside"}},
            {"type": "hologram"},
        ]});
        assert_eq!(
            text_of(&result),
            "one\ntwo\n[image image/png, about 6 bytes; use -o json to see it]\ninside\n[hologram; use -o json to see it]"
        );
        assert_eq!(
            text_of(&json!({"structuredContent": 7, "content": []})),
            "7"
        );
    }
}
