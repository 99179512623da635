//! `boxwood mcp test`.

use boxwood_api::{McpServerName, McpStatus};
use boxwood_client::Client;

use super::progress::{follow_once, outcome_line};
use super::spec_flags::SpecFlags;
use super::{refused, server_name};
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp test -- uvx mcp-server-time
  boxwood mcp test time
  boxwood mcp test -e API_KEY --no-network -- npx -y some-server
  boxwood mcp test -o json -- uvx mcp-server-sqlite | jq '.runtime.error_phase, .log'";

/// Try a server in a box that is not kept
///
/// Starts it in a box of its own, which is gone afterwards, and shows the way there and the tools it
/// has. Ends with 1 when it did not come to be connected. Interrupting it ends the test. A NAME is a
/// stored server, tried as it is stored and with its secrets; the one that runs is left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "boxwood mcp test [OPTIONS] -- <COMMAND>...\n       boxwood mcp test <NAME>")]
pub(super) struct Args {
    /// A stored server
    #[arg(value_name = "NAME", value_parser = server_name, conflicts_with = "SpecFlags")]
    name: Option<McpServerName>,

    #[command(flatten)]
    flags: SpecFlags,
}

/// Not visible outside this command.
const UNNAMED: &str = "test";

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let spec = match &args.name {
        Some(_) => None,
        None => Some(args.flags.spec(unnamed()?, true)?),
    };
    let name = args.name.clone().map_or_else(unnamed, Ok)?;
    let is_connected = if output.is_json() {
        let result = match &spec {
            Some(spec) => client.test_mcp_server(spec).await,
            None => client.test_stored_mcp_server(&name).await,
        };
        let result = result.map_err(refused)?;
        Output::json(&result)?;
        result.ok
    } else {
        let stream = match &spec {
            Some(spec) => client.follow_mcp_test(spec).await,
            None => client.follow_stored_mcp_test(&name).await,
        };
        let runtime = follow_once(stream.map_err(refused)?, name.as_str(), output).await?;
        Output::line(&outcome_line(name.as_str(), &runtime))?;
        for tool in &runtime.tools {
            Output::line(&format!("  {}", printable(&tool.name)))?;
        }
        runtime.status == McpStatus::Connected
    };
    Ok(if is_connected { 0 } else { EXIT_ERROR })
}

fn unnamed() -> Outcome<McpServerName> {
    McpServerName::new(UNNAMED).map_err(|error| Failure::usage(error.to_string()))
}
