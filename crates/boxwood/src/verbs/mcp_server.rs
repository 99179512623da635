//! `boxwood mcp-server`: the agent tools for one MCP client, on stdin and stdout.

use std::fmt::Write as _;
use std::path::Path;

use boxwood_agent::{Agent, AgentSettings, BoxSection, Remote};
use boxwood_api::{ErrorCode, SessionId};
use boxwood_mcp::{DefaultConversation, client_config, serve_stdio};
use sha2::{Digest as _, Sha256};

use crate::daemon;
use crate::failure::{EXIT_USAGE, Failure, Outcome};
use crate::flags::ClientKind;
use crate::interactive::interrupts::Interrupts;
use crate::output::Output;
use crate::runtime;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp-server --print-config claude          Print the configuration for .mcp.json
  boxwood mcp-server --print-config vscode --http   The same, for a client that uses HTTP
  boxwood mcp-server --session build                Run the tools in the session `build`

Needs a daemon (`boxwood serve`). Calls continue when the daemon is restarted. The same tools are
available at http://127.0.0.1:5410/mcp.";

/// Serve the agent tools to an MCP client
///
/// Uses the Model Context Protocol on stdin and stdout, and is normally started by the client. The tools run in
/// a box of the daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Session in which the tools run [default: one for each working directory]
    #[arg(long, value_name = "NAME")]
    session: Option<SessionId>,

    /// Print the configuration for a client and exit
    #[arg(long, value_enum, value_name = "CLIENT")]
    print_config: Option<ClientKind>,

    /// With --print-config: connect to the daemon over HTTP instead of starting this command
    #[arg(long, requires = "print_config")]
    http: bool,
}

/// `url` is the value of `--url` or `BOXWOOD_URL`.
pub(crate) fn main(args: &Args, url: Option<&str>) -> Outcome<()> {
    if let Some(client) = args.print_config {
        return print_config(args, client, url);
    }
    let runtime = runtime::for_client()?;
    let ended = runtime.block_on(serve(args, url));
    // Does not wait for a blocked read of stdin.
    runtime.shutdown_background();
    ended
}

fn print_config(args: &Args, client: ClientKind, url: Option<&str>) -> Outcome<()> {
    let session = args.session.as_ref();
    let entry = if args.http {
        let header = session.map(|session| ("Boxwood-Session".to_owned(), session.to_string()));
        daemon::reach_by_http(url, "/mcp", header.into_iter().collect())?
    } else {
        let mut args = vec!["mcp-server".to_owned()];
        if let Some(session) = session {
            args.extend(["--session".to_owned(), session.to_string()]);
        }
        daemon::reach_by_command(url, args)?
    };
    Output::json(&client_config(client.into(), [("boxwood", &entry)]))
}

async fn serve(args: &Args, url: Option<&str>) -> Outcome<()> {
    let directory = std::env::current_dir()
        .map_err(|error| Failure::local("cannot find the working directory", error))?;
    let default_conversation = match &args.session {
        Some(id) => DefaultConversation::Named(id.clone()),
        None => DefaultConversation::Derived(name_of(&directory)),
    };
    let (endpoint, token) = daemon::endpoint(url)?;
    let settings = settings(&directory)?;
    let remote = Remote::new(endpoint, token);
    let agent = Agent::with_daemon(remote.clone(), settings);
    let mut interrupts = Interrupts::watch()?;
    let interrupted = async move {
        interrupts.next().await;
    };
    let ended = Box::pin(serve_stdio(agent, default_conversation, interrupted)).await;
    // Kills the commands of unfinished calls in their boxes.
    remote.dispose().await;
    ended.map_err(Failure::internal)
}

/// Settings from the environment. The daemon's configuration limits most of them.
fn settings(directory: &Path) -> Outcome<AgentSettings> {
    // Variables that are not UTF-8 are no settings.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let section = BoxSection::default().with_environment(variables);
    // The names of profiles are known only to the daemon.
    section
        .settings_elsewhere(directory)
        .map_err(|error| Failure::new(ErrorCode::ValidationError, error).exit(EXIT_USAGE))
}

/// Depends only on the directory, the user and the machine.
fn name_of(directory: &Path) -> String {
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let digest = Sha256::new()
        .chain_update(machine)
        .chain_update(rustix::process::geteuid().as_raw().to_ne_bytes())
        .chain_update(directory.as_os_str().as_encoded_bytes())
        .finalize();
    let mut name = String::new();
    for byte in &digest[..6] {
        _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_has_its_own_name() {
        let of = |path: &str| name_of(Path::new(path));
        assert_eq!(of("/home/a"), of("/home/a"));
        assert_ne!(of("/home/a"), of("/home/b"));
        assert_eq!(of("/home/a").len(), 12);
    }
}
