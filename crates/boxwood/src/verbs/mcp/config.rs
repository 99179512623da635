//! `boxwood mcp config`.

use boxwood_api::McpServerName;
use boxwood_client::Client;
use boxwood_mcp::{McpReach, client_config};

use super::{refused, server_name};
use crate::daemon;
use crate::failure::{Failure, Outcome};
use crate::flags::ClientKind;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp config --client claude                 For .mcp.json or claude_desktop_config.json
  boxwood mcp config time git --client cursor        Only these, for .cursor/mcp.json
  boxwood mcp config --client vscode --http          For .vscode/mcp.json, over HTTP
  boxwood mcp config --all --client claude           All servers as one, with tools like time__now

With --http a client asks the daemon itself; where BOXWOOD_TOKEN is set, the client is told where to
take a token from. Without it the client starts `boxwood mcp proxy`, which finds the daemon as every
verb does.";

/// In the place of a name: every server.
const ALL: &str = "_all";

/// Print what to paste into an MCP client's configuration
///
/// Every enabled server, or those that are named. No secret of a server is in it: clients need none any
/// more.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Names of the servers [default: every enabled one]
    #[arg(value_name = "NAME", value_parser = server_name)]
    names: Vec<McpServerName>,

    /// Which client it is for
    #[arg(long, value_enum, value_name = "CLIENT")]
    client: ClientKind,

    /// Let the client ask the daemon over HTTP instead of starting this command
    #[arg(long)]
    http: bool,

    /// One entry for all servers together
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

pub(super) async fn main(args: &Args, client: &Client, url: Option<&str>) -> Outcome<u8> {
    // The entry's name in the client, and the server's at the gateway.
    let entries: Vec<(String, String)> = if args.all {
        vec![("boxwood".to_owned(), ALL.to_owned())]
    } else {
        let names = names(args, client).await?;
        names.into_iter().map(|name| (name.clone(), name)).collect()
    };
    let place = Place::find(args.http, url)?;
    let reached: Vec<(String, McpReach)> = entries
        .into_iter()
        .map(|(entry, server)| (entry, place.reach(&server)))
        .collect();
    let servers = reached.iter().map(|(entry, reach)| (entry.as_str(), reach));
    Output::json(&client_config(args.client.into(), servers))?;
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
            .hint("`boxwood mcp import FILE` or `boxwood mcp add NAME -- COMMAND` adds some"));
    }
    Ok(names)
}

enum Place<'a> {
    Http {
        address: String,
    },
    Program {
        program: String,
        url: Option<&'a str>,
    },
}

impl<'a> Place<'a> {
    fn find(is_http: bool, url: Option<&'a str>) -> Outcome<Self> {
        Ok(if is_http {
            Self::Http {
                address: daemon::http_address(url)?,
            }
        } else {
            Self::Program {
                program: daemon::this_program()?,
                url,
            }
        })
    }

    fn reach(&self, server: &str) -> McpReach {
        match self {
            Self::Http { address } => McpReach::Http {
                url: format!("{address}/mcp/{server}"),
                headers: Vec::new(),
                with_token: daemon::has_token(),
            },
            Self::Program { program, url } => {
                let mut args: Vec<String> = ["mcp", "proxy", server].map(str::to_owned).into();
                if let Some(url) = url {
                    args.extend(["--url".to_owned(), (*url).to_owned()]);
                }
                McpReach::Command {
                    program: program.clone(),
                    args,
                }
            }
        }
    }
}
