//! `boxwood mcp config`.

use boxwood_api::McpServerName;
use boxwood_client::Client;
use boxwood_mcp::client_config;

use super::refused;
use crate::daemon;
use crate::failure::{Failure, Outcome};
use crate::flags::ClientKind;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp config --client claude                 For .mcp.json or claude_desktop_config.json
  boxwood mcp config time git --client cursor        Only these servers, for .cursor/mcp.json
  boxwood mcp config --client vscode --http          For .vscode/mcp.json, over HTTP
  boxwood mcp config --all --client claude           All servers as one, with tools like time__now

With --http the client connects to the daemon directly; if BOXWOOD_TOKEN is set, the configuration
says where the client gets a token. Otherwise the client starts `boxwood mcp proxy`.";

/// Print a configuration for an MCP client
///
/// Contains all enabled servers, or those that are named. It contains no secrets of the servers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Names of the servers [default: all enabled ones]
    #[arg(value_name = "NAME")]
    names: Vec<McpServerName>,

    /// The client
    #[arg(long, value_enum, value_name = "CLIENT")]
    client: ClientKind,

    /// Connect to the daemon over HTTP instead of starting `boxwood mcp proxy`
    #[arg(long)]
    http: bool,

    /// Print a single entry for all servers
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

pub(super) async fn main(args: &Args, client: &Client, url: Option<&str>) -> Outcome<u8> {
    let entry = |server: &str| {
        if args.http {
            return daemon::reach_by_http(url, &format!("/mcp/{server}"), Vec::new());
        }
        daemon::reach_by_command(url, ["mcp", "proxy", server].map(str::to_owned))
    };
    // The name of the entry, and how the client reaches the server.
    let mut entries = Vec::new();
    if args.all {
        entries.push(("boxwood".to_owned(), entry("_all")?));
    } else {
        for name in names(args, client).await? {
            let entry = entry(&name)?;
            entries.push((name, entry));
        }
    }
    let entries = entries.iter().map(|(name, entry)| (name.as_str(), entry));
    Output::json(&client_config(args.client.into(), entries))?;
    Ok(0)
}

async fn names(args: &Args, client: &Client) -> Outcome<Vec<String>> {
    if !args.names.is_empty() {
        return Ok(args.names.iter().map(ToString::to_string).collect());
    }
    let servers = client.mcp_servers().await.map_err(refused)?;
    let names: Vec<String> = servers
        .into_iter()
        .filter(|server| server.enabled)
        .map(|server| server.name.into())
        .collect();
    if names.is_empty() {
        return Err(Failure::usage("there are no enabled MCP servers")
            .hint("`boxwood mcp import FILE` or `boxwood mcp add NAME -- COMMAND` adds servers"));
    }
    Ok(names)
}
