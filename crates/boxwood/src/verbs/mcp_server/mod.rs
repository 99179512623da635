//! `boxwood mcp-server`: the agent's tools for one MCP client, on stdin and stdout.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use boxwood_agent::{Agent, AgentSettings, BoxSection, Connector};
use boxwood_api::{ErrorCode, SessionId};
use boxwood_mcp::{Home, McpReach, client_config, serve_stdio};
use sha2::{Digest as _, Sha256};

use crate::daemon;
use crate::failure::{Failure, Outcome};
use crate::flags::ClientKind;
use crate::interrupts::Interrupts;
use crate::runtime;
use crate::verbs::session_id;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp-server --print-config claude          What to paste into .mcp.json
  boxwood mcp-server --print-config vscode --http   The same for a client that asks the daemon
  boxwood mcp-server --session build                Tools that work in the session `build`

Needs a daemon (`boxwood serve`); a call that is going on outlives a restart of it. The same tools
are at http://127.0.0.1:5410/mcp.";

/// Serve the agent's tools to an MCP client
///
/// Speaks the Model Context Protocol on stdin and stdout, so a client has to start it. Everything the
/// tools do happens in a box of the daemon's.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session whose box the tools use [default: one for each working directory]
    #[arg(long, value_name = "NAME", value_parser = session_id)]
    session: Option<SessionId>,

    /// Print what to paste into a client's configuration, and stop
    #[arg(long, value_enum, value_name = "CLIENT")]
    print_config: Option<ClientKind>,

    /// With --print-config: let the client ask the daemon over HTTP instead of starting this command
    #[arg(long, requires = "print_config")]
    http: bool,
}

/// `url` is what the person said, by flag or variable.
pub(crate) fn main(args: &Args, url: Option<&str>) -> Outcome<()> {
    if let Some(client) = args.print_config {
        return print_config(args, client, url);
    }
    let runtime = runtime::for_client()?;
    let ended = runtime.block_on(serve(args, url));
    // A read of stdin that never ends must not keep us here.
    runtime.shutdown_background();
    ended
}

fn print_config(args: &Args, client: ClientKind, url: Option<&str>) -> Outcome<()> {
    let session = args.session.as_ref();
    let reach = if args.http {
        McpReach::Http {
            url: format!("{}/mcp", daemon::http_address(url)?),
            headers: session
                .map(|session| ("Boxwood-Session".to_owned(), session.to_string()))
                .into_iter()
                .collect(),
            with_token: daemon::has_token(),
        }
    } else {
        let mut args = vec!["mcp-server".to_owned()];
        if let Some(url) = url {
            args.extend(["--url".to_owned(), url.to_owned()]);
        }
        if let Some(session) = session {
            args.extend(["--session".to_owned(), session.to_string()]);
        }
        McpReach::Command {
            program: daemon::this_program()?,
            args,
        }
    };
    let written = client_config(client.into(), [("boxwood", &reach)]);
    let text = serde_json::to_string_pretty(&written)
        .context("JSON")
        .map_err(internal)?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    Ok(stdout.flush()?)
}

async fn serve(args: &Args, url: Option<&str>) -> Outcome<()> {
    let directory = std::env::current_dir()
        .map_err(|error| Failure::local("the working directory is not known", error))?;
    let home = match &args.session {
        Some(id) => Home::Named(id.clone()),
        None => Home::Derived(name_of(&directory)),
    };
    let (endpoint, token) = daemon::place(url)?;
    let settings = settings(&directory)?;
    let connector = settings.enabled.then(|| Connector::remote(endpoint, token));
    let agent = match &connector {
        Some(connector) => Agent::beside(connector.boxes(), settings),
        None => Agent::disabled(settings),
    };
    let mut interrupts = Interrupts::watch()
        .map_err(|error| Failure::local("signals could not be watched", error))?;
    let told_to_leave = async move {
        interrupts.next().await;
    };
    let ended = serve_stdio(agent, home, told_to_leave).await;
    // Kills the commands of unfinished calls in their boxes.
    if let Some(connector) = connector {
        connector.dispose().await;
    }
    ended.map_err(|error| internal(error.into()))
}

/// What this process was told. The daemon's operator has the last word about most of it.
fn settings(directory: &Path) -> Outcome<AgentSettings> {
    // What is not text cannot be meant for us.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let section = BoxSection::default().with_environment(variables);
    // The daemon's profile is used, so only the daemon knows which names there are.
    section
        .settings_elsewhere(directory)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// The same for the same directory of the same user on the same machine, today and tomorrow.
fn name_of(directory: &Path) -> String {
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let digest = Sha256::new()
        .chain_update(machine)
        .chain_update(rustix::process::geteuid().as_raw().to_ne_bytes())
        .chain_update(directory.as_os_str().as_encoded_bytes())
        .finalize();
    let mut name = String::new();
    for byte in digest.iter().take(6) {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn internal(error: anyhow::Error) -> Failure {
    Failure::new(ErrorCode::InternalError, error)
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
