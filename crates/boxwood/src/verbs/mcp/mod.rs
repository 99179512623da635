//! `boxwood mcp`: MCP servers that the daemon runs in boxes.

mod config;
mod import;
mod lifecycle;
mod progress;
mod proxy;
mod spec_flags;
mod tools;
mod view;

use boxwood_api::ErrorCode;
use boxwood_client::{Client, ClientError};

use crate::failure::{Failure, Outcome};
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp import ~/.cursor/mcp.json              Import all servers of a client's configuration
  boxwood mcp config --client cursor                 Print the configuration that replaces it
  boxwood mcp add time -- uvx mcp-server-time        Add one server
  boxwood mcp ls                                     List servers and their status
  boxwood mcp call time get_current_time timezone=Europe/Paris
  boxwood mcp logs -f time                           Follow the output of a server

Each server runs in its own box. MCP clients reach it at http://127.0.0.1:5410/mcp/NAME, and all
servers together at /mcp/_all. Clients that can only start programs use `boxwood mcp proxy NAME`.";

/// Run MCP servers in boxes
///
/// The daemon installs the servers, restarts them if they fail, and makes them available to MCP clients. Secrets
/// in their variables are stored separately and never shown.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Add(Box<lifecycle::Add>),
    Import(import::Args),
    Ls(view::Ls),
    Status(view::Status),
    Logs(view::Logs),
    Tools(tools::Tools),
    Call(tools::Call),
    Test(Box<lifecycle::Test>),
    /// Start servers that are stopped or have failed
    ///
    /// Shows the progress until they are connected.
    #[command(
        after_help = "Examples:\n  boxwood mcp start time\n  boxwood mcp start time git --no-wait"
    )]
    Start(lifecycle::Start),
    Restart(lifecycle::Restart),
    /// Stop servers
    ///
    /// Calls do not start a stopped server. It is started by `boxwood mcp start`, and by the next start of the
    /// daemon unless it is disabled.
    #[command(after_help = "Examples:\n  boxwood mcp stop time")]
    Stop(lifecycle::Names),
    /// Enable servers and start them, now and whenever the daemon starts
    #[command(after_help = "Examples:\n  boxwood mcp enable time")]
    Enable(lifecycle::Start),
    /// Stop servers and do not start them any more
    #[command(after_help = "Examples:\n  boxwood mcp disable time")]
    Disable(lifecycle::Names),
    Rm(lifecycle::Rm),
    Proxy(proxy::Args),
    Config(config::Args),
}

/// `url` is the value of `--url` or `BOXWOOD_URL`.
pub(crate) async fn main(
    args: &Args,
    client: &Client,
    output: Output,
    url: Option<&str>,
) -> Outcome<u8> {
    match &args.action {
        Action::Add(args) => lifecycle::add(args, client, output).await,
        Action::Import(args) => import::main(args, client, output).await,
        Action::Ls(args) => view::ls(args, client, output).await,
        Action::Status(args) => view::status(args, client, output).await,
        Action::Logs(args) => view::logs(args, client, output).await,
        Action::Tools(args) => tools::tools(args, client, output).await,
        Action::Call(args) => tools::call(args, client, output).await,
        Action::Test(args) => lifecycle::test(args, client, output).await,
        Action::Start(args) => lifecycle::start(args, client, output).await,
        Action::Restart(args) => lifecycle::restart(args, client, output).await,
        Action::Stop(args) => lifecycle::stop(args, client, output).await,
        Action::Enable(args) => lifecycle::enable(args, client, output).await,
        Action::Disable(args) => lifecycle::disable(args, client, output).await,
        Action::Rm(args) => lifecycle::rm(args, client, output).await,
        Action::Proxy(args) => proxy::main(args, client).await,
        Action::Config(args) => config::main(args, client, url).await,
    }
}

/// Adds a hint that names a command.
fn refused(error: ClientError) -> Failure {
    Failure::from(error).hint_for(ErrorCode::NotFound, "`boxwood mcp ls` shows the servers")
}
