//! `boxwood mcp`: MCP servers that the daemon runs in boxes. One file per action.

mod add;
mod call;
mod config;
mod document;
mod env_file;
mod import;
mod lifecycle;
mod logs;
mod ls;
mod progress;
mod prompt;
mod proxy;
mod spec_flags;
mod status;
mod test;
mod tools;
mod values;

use boxwood_api::{ErrorCode, McpServerName, McpStatus};
use boxwood_client::{Client, ClientError};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::table::Tone;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp import ~/.cursor/mcp.json              Every server of a client's configuration, boxed
  boxwood mcp config --client cursor                 What to paste back in its place
  boxwood mcp add time -- uvx mcp-server-time        One server
  boxwood mcp ls                                     How they are
  boxwood mcp call time get_current_time timezone=Europe/Paris
  boxwood mcp logs -f time                           What it writes to stderr

Each server has a box of its own. MCP clients reach it at http://127.0.0.1:5410/mcp/NAME, all of them
together at /mcp/_all, and clients that only start programs use `boxwood mcp proxy NAME`.";

/// Run MCP servers in boxes
///
/// The daemon installs them, keeps them alive and serves them to any MCP client. Secrets in their
/// variables are kept apart and never shown again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Add(Box<add::Args>),
    Import(import::Args),
    Ls(ls::Args),
    Status(status::Args),
    Logs(logs::Args),
    Tools(tools::Args),
    Call(call::Args),
    Test(Box<test::Args>),
    Start(lifecycle::Start),
    Restart(lifecycle::Restart),
    Stop(lifecycle::Stop),
    Enable(lifecycle::Enable),
    Disable(lifecycle::Disable),
    Rm(lifecycle::Rm),
    Proxy(proxy::Args),
    Config(config::Args),
}

/// `url` is what the person said, by flag or variable.
pub(crate) async fn main(
    args: &Args,
    client: &Client,
    output: Output,
    url: Option<&str>,
) -> Outcome<u8> {
    match &args.action {
        Action::Add(args) => add::main(args, client, output).await,
        Action::Import(args) => import::main(args, client, output).await,
        Action::Ls(args) => ls::main(args, client, output).await,
        Action::Status(args) => status::main(args, client, output).await,
        Action::Logs(args) => logs::main(args, client, output).await,
        Action::Tools(args) => tools::main(args, client, output).await,
        Action::Call(args) => call::main(args, client, output).await,
        Action::Test(args) => test::main(args, client, output).await,
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

/// A server's name as an argument.
fn server_name(text: &str) -> Result<McpServerName, String> {
    McpServerName::new(text).map_err(|error| error.to_string())
}

/// The next step in the words of this command.
fn refused(error: ClientError) -> Failure {
    let hint = match &error {
        ClientError::Refused {
            code: ErrorCode::NotFound,
            hint: None,
            ..
        } => Some("`boxwood mcp ls` shows the servers".to_owned()),
        _ => None,
    };
    Failure::from(error).maybe_hint(hint)
}

fn tone(status: McpStatus) -> Tone {
    match status {
        McpStatus::Connected => Tone::Good,
        McpStatus::Queued | McpStatus::Connecting => Tone::Warning,
        McpStatus::Error => Tone::Bad,
        McpStatus::Disabled | McpStatus::Stopped => Tone::Faint,
    }
}

/// `1 tool`, `2 tools`.
fn tool_count(count: usize) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} tool{ending}")
}
