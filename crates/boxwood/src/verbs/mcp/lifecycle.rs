//! `boxwood mcp add`, `test`, `start`, `restart`, `stop`, `enable`, `disable` and `rm`.

use boxwood_api::{EditMcpServerRequest, ErrorCode, McpServerInfo, McpServerName, McpStatus};
use boxwood_client::{Client, ClientError, McpTest};

use super::progress::{Wait, follow_once, print, settle};
use super::refused;
use super::spec_flags::SpecFlags;
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::output::Output;
use crate::verbs::deletions::Deletions;

const ADD_EXAMPLES: &str = "\
Examples:
  boxwood mcp add time -- uvx mcp-server-time --local-timezone=Europe/Paris
  boxwood mcp add files -- npx -y @modelcontextprotocol/server-filesystem /home/me/notes
  boxwood mcp add github -e GITHUB_TOKEN -- npx -y some-github-server
  boxwood mcp add git --writable -m 512m -- uvx mcp-server-git --repository /home/me/project
  boxwood mcp add db --no-network --deny-tool 'drop_*' -- uvx --with 'mcp<2' mcp-server-sqlite

To add all servers of an existing configuration, use `boxwood mcp import`.";

/// Add a server and start it
///
/// Shows the progress until the server is connected. The packages of its command are installed in a box first;
/// later starts use them again.
#[derive(Debug, clap::Args)]
#[command(after_help = ADD_EXAMPLES, override_usage = "boxwood mcp add [OPTIONS] <NAME> -- <COMMAND>...")]
pub(super) struct Add {
    /// Name of the new server
    name: McpServerName,

    /// Replace an existing server of that name
    #[arg(long)]
    replace: bool,

    /// Add it without starting it; `boxwood mcp enable` starts it
    #[arg(long)]
    disabled: bool,

    #[command(flatten)]
    wait: Wait,

    #[command(flatten)]
    flags: SpecFlags,
}

pub(super) async fn add(args: &Add, client: &Client, output: Output) -> Outcome<u8> {
    let spec = args.flags.spec(args.name.clone(), !args.disabled)?;
    let added = if args.replace {
        client.put_mcp_server(&spec).await
    } else {
        client.add_mcp_server(&spec).await
    };
    let added = added.map_err(|error| {
        let is_taken = error.code() == ErrorCode::SessionConflict;
        let hint = is_taken.then(|| "`--replace` replaces it".to_owned());
        refused(error).maybe_hint(hint)
    })?;
    let wait = if args.disabled {
        Wait::NEVER
    } else {
        args.wait
    };
    settle(client, vec![added], wait, output).await
}

const TEST_EXAMPLES: &str = "\
Examples:
  boxwood mcp test -- uvx mcp-server-time
  boxwood mcp test time
  boxwood mcp test -e API_KEY --no-network -- npx -y some-server
  boxwood mcp test -o json -- uvx mcp-server-sqlite | jq '.runtime.error_phase, .log'";

/// Test a server in a temporary box
///
/// Starts the server in a new box, shows the progress and its tools, and removes the box. Exits with 1 if the
/// server could not be connected. Ctrl-C cancels the test. With NAME, tests a stored server with its secrets;
/// the running server is not affected.
#[derive(Debug, clap::Args)]
#[command(after_help = TEST_EXAMPLES, override_usage = "boxwood mcp test [OPTIONS] -- <COMMAND>...\n       boxwood mcp test <NAME>")]
pub(super) struct Test {
    /// Name of a stored server
    #[arg(conflicts_with = "SpecFlags")]
    name: Option<McpServerName>,

    #[command(flatten)]
    flags: SpecFlags,
}

pub(super) async fn test(args: &Test, client: &Client, output: Output) -> Outcome<u8> {
    // The name of an unnamed server is not visible outside of this command.
    let unnamed = McpServerName::new("test").map_err(Failure::internal)?;
    let spec = match &args.name {
        Some(_) => None,
        None => Some(args.flags.spec(unnamed.clone(), true)?),
    };
    let name = args.name.as_ref().unwrap_or(&unnamed);
    let test = spec.as_ref().map_or(McpTest::Stored(name), McpTest::Spec);
    let is_connected = if output.is_json() {
        let result = client.test_mcp_server(test).await.map_err(refused)?;
        Output::json(&result)?;
        result.ok
    } else {
        let stream = client.follow_mcp_test(test).await.map_err(refused)?;
        let runtime = follow_once(stream, name.as_str(), output).await?;
        print(name.as_str(), &runtime)?;
        let tools = runtime.tools.iter().map(|tool| format!("  {}", tool.name));
        let tools: Vec<String> = tools.collect();
        Output::names(tools.iter().map(String::as_str))?;
        runtime.status == McpStatus::Connected
    };
    Ok(if is_connected { 0 } else { EXIT_ERROR })
}

#[derive(Debug, clap::Args)]
pub(super) struct Names {
    /// Names of the servers
    #[arg(value_name = "NAME", required = true)]
    names: Vec<McpServerName>,
}

// For `start` and `enable`; their help is at the variants.
#[derive(Debug, clap::Args)]
pub(super) struct Start {
    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    wait: Wait,
}

/// Stop servers and start them again
///
/// Installed packages are used again, unless --reinstall is given. The count of earlier failures is reset.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  boxwood mcp restart time\n  boxwood mcp restart time git --no-wait\n  boxwood mcp restart time --reinstall      Install the newest version of its packages"
)]
pub(super) struct Restart {
    #[command(flatten)]
    names: Names,

    /// Install the packages again
    #[arg(long)]
    reinstall: bool,

    #[command(flatten)]
    wait: Wait,
}

/// Remove servers, with their boxes and secrets
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  boxwood mcp rm time\n  boxwood mcp rm -f time git     Ignore servers that do not exist"
)]
pub(super) struct Rm {
    #[command(flatten)]
    names: Names,

    /// Ignore servers that do not exist
    #[arg(short, long)]
    force: bool,
}

pub(super) async fn start(args: &Start, client: &Client, output: Output) -> Outcome<u8> {
    let start = async |name: &McpServerName| client.start_mcp_server(name).await;
    each(&args.names, client, args.wait, output, start).await
}

pub(super) async fn restart(args: &Restart, client: &Client, output: Output) -> Outcome<u8> {
    let restart =
        async |name: &McpServerName| client.restart_mcp_server(name, args.reinstall).await;
    each(&args.names, client, args.wait, output, restart).await
}

pub(super) async fn stop(args: &Names, client: &Client, output: Output) -> Outcome<u8> {
    let stop = async |name: &McpServerName| client.stop_mcp_server(name).await;
    each(args, client, Wait::NEVER, output, stop).await
}

pub(super) async fn enable(args: &Start, client: &Client, output: Output) -> Outcome<u8> {
    let edit = set_enabled(true);
    let enable = async |name: &McpServerName| client.edit_mcp_server(name, &edit).await;
    each(&args.names, client, args.wait, output, enable).await
}

pub(super) async fn disable(args: &Names, client: &Client, output: Output) -> Outcome<u8> {
    let edit = set_enabled(false);
    let disable = async |name: &McpServerName| client.edit_mcp_server(name, &edit).await;
    each(args, client, Wait::NEVER, output, disable).await
}

fn set_enabled(enabled: bool) -> EditMcpServerRequest {
    EditMcpServerRequest {
        enabled: Some(enabled),
        ..EditMcpServerRequest::default()
    }
}

/// Runs the action for all servers, reports every error and fails at the end with the last one.
async fn each(
    names: &Names,
    client: &Client,
    wait: Wait,
    output: Output,
    action: impl AsyncFn(&McpServerName) -> Result<McpServerInfo, ClientError>,
) -> Outcome<u8> {
    let mut servers = Vec::new();
    let mut failure: Option<Failure> = None;
    for name in &names.names {
        match action(name).await {
            Ok(server) => servers.push(server),
            Err(error) => {
                if let Some(previous) = failure.replace(refused(error)) {
                    previous.print(output.format());
                }
            }
        }
    }
    let mut code = 0;
    if !servers.is_empty() {
        code = settle(client, servers, wait, output).await?;
    }
    // Without waiting, only the state right after the request is known.
    let code = if wait.no_wait { 0 } else { code };
    failure.map_or(Ok(code), Err)
}

pub(super) async fn rm(args: &Rm, client: &Client, output: Output) -> Outcome<u8> {
    let mut deletions = Deletions::new(output);
    for name in &args.names.names {
        match client.remove_mcp_server(name).await {
            Ok(_) => deletions.deleted(name.as_str())?,
            Err(error) if error.code() == ErrorCode::NotFound && args.force => {}
            Err(error) => deletions.failed(refused(error)),
        }
    }
    let removed = deletions.finish("removed");
    removed.map_err(|failure| failure.exit(EXIT_ERROR))?;
    Ok(0)
}
