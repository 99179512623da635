//! `boxwood mcp add`.

use boxwood_api::McpServerName;
use boxwood_client::Client;

use super::progress::{Waiting, settle};
use super::spec_flags::SpecFlags;
use super::{refused, server_name};
use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp add time -- uvx mcp-server-time --local-timezone=Europe/Paris
  boxwood mcp add files -- npx -y @modelcontextprotocol/server-filesystem /home/me/notes
  boxwood mcp add github -e GITHUB_TOKEN -- npx -y some-github-server
  boxwood mcp add git --writable -m 512m -- uvx mcp-server-git --repository /home/me/project
  boxwood mcp add db --no-network --deny-tool 'drop_*' -- uvx --with 'mcp<2' mcp-server-sqlite

A configuration that you have already is added whole by `boxwood mcp import`.";

/// Add a server and start it
///
/// Waits until it is connected and shows the way there, phase by phase. What its command needs is
/// installed in a box first; later starts find it there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "boxwood mcp add [OPTIONS] <NAME> -- <COMMAND>...")]
pub(super) struct Args {
    /// What it shall be called
    #[arg(value_parser = server_name)]
    name: McpServerName,

    /// Put it in the place of the one of that name
    #[arg(long)]
    replace: bool,

    /// Only put it down; `boxwood mcp enable` starts it
    #[arg(long)]
    disabled: bool,

    /// Do not wait until it is connected
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    flags: SpecFlags,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let spec = args.flags.spec(args.name.clone(), !args.disabled)?;
    let added = if args.replace {
        client.put_mcp_server(&spec).await
    } else {
        client.add_mcp_server(&spec).await
    };
    let added = added.map_err(|error| {
        let is_taken = error.code() == boxwood_api::ErrorCode::SessionConflict;
        let failure = refused(error);
        if is_taken {
            failure.hint("`--replace` puts this one in its place")
        } else {
            failure
        }
    })?;
    let waiting = if args.no_wait || args.disabled {
        Waiting::Never
    } else {
        Waiting::UntilSettled
    };
    settle(client, vec![added], waiting, output).await
}
