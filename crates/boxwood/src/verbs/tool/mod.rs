//! `boxwood tool`: the daemon's tools for agents, from a terminal. One file per action.

mod call;
mod ls;

use boxwood_client::Client;

use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood tool ls
  boxwood tool call exec '{\"command\": \"python3 -c \\\"print(6 * 7)\\\"\"}'
  boxwood tool call read '{\"path\": \"/workspace/out.txt\"}' -o json
  boxwood tool call grep '{\"pattern\": \"TODO\"}' --query '{\"launcher_id\": \"room-1\"}'";

/// Call the tools that agents have
///
/// The same tools that a platform reaches over HTTP and any agent over MCP. A tool acts in the box of a
/// conversation: `--query` says which conversation is meant.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Ls(ls::Args),
    Call(call::Args),
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    match &args.action {
        Action::Ls(args) => ls::main(args, client, output).await,
        Action::Call(args) => call::main(args, client, output).await,
    }
}
