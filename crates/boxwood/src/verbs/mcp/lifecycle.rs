//! What servers are told to do: `start`, `restart`, `stop`, `enable`, `disable`, `rm`.

use boxwood_api::{EditMcpServerRequest, ErrorCode, McpServerInfo, McpServerName};
use boxwood_client::{Client, ClientError};

use super::progress::{Waiting, outcome_line, settle};
use super::{refused, server_name};
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::output::Output;
use crate::verbs::deletions::Deletions;

#[derive(Debug, clap::Args)]
struct Names {
    /// Names of the servers
    #[arg(value_name = "NAME", value_parser = server_name, required = true)]
    names: Vec<McpServerName>,
}

#[derive(Debug, clap::Args)]
struct Wait {
    /// Do not wait until they are connected
    #[arg(long)]
    no_wait: bool,
}

impl Wait {
    fn waiting(&self) -> Waiting {
        if self.no_wait {
            Waiting::Never
        } else {
            Waiting::UntilSettled
        }
    }
}

/// Start servers that were stopped or have failed
///
/// Waits until they are connected and shows the way there, phase by phase.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  boxwood mcp start time\n  boxwood mcp start time git --no-wait"
)]
pub(super) struct Start {
    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    wait: Wait,
}

/// Stop servers and start them again
///
/// What was installed is used again, unless told otherwise. Failures before it are forgotten, so one that
/// was given up on is tried anew.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  boxwood mcp restart time\n  boxwood mcp restart time git --no-wait\n  boxwood mcp restart time --reinstall      With the newest version of its packages"
)]
pub(super) struct Restart {
    #[command(flatten)]
    names: Names,

    /// Install their packages anew
    #[arg(long)]
    reinstall: bool,

    #[command(flatten)]
    wait: Wait,
}

/// Stop servers until they are started again
///
/// Calls do not start them. A restart of the daemon does, unless they are disabled.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  boxwood mcp stop time")]
pub(super) struct Stop {
    #[command(flatten)]
    names: Names,
}

/// Let servers be started, now and with the daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  boxwood mcp enable time")]
pub(super) struct Enable {
    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    wait: Wait,
}

/// Stop servers and keep them from being started
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  boxwood mcp disable time")]
pub(super) struct Disable {
    #[command(flatten)]
    names: Names,
}

/// Remove servers, with their boxes and their secrets
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  boxwood mcp rm time\n  boxwood mcp rm -f time git     No error when they are gone already"
)]
pub(super) struct Rm {
    #[command(flatten)]
    names: Names,

    /// A server that does not exist is not an error
    #[arg(short, long)]
    force: bool,
}

pub(super) async fn start(args: &Start, client: &Client, output: Output) -> Outcome<u8> {
    let told = each(&args.names, async |name| {
        client.start_mcp_server(name).await
    })
    .await;
    told.shown(client, args.wait.waiting(), output).await
}

pub(super) async fn restart(args: &Restart, client: &Client, output: Output) -> Outcome<u8> {
    let told = each(&args.names, async |name| {
        if args.reinstall {
            client.reinstall_mcp_server(name).await
        } else {
            client.restart_mcp_server(name).await
        }
    })
    .await;
    told.shown(client, args.wait.waiting(), output).await
}

pub(super) async fn stop(args: &Stop, client: &Client, output: Output) -> Outcome<u8> {
    let told = each(&args.names, async |name| client.stop_mcp_server(name).await).await;
    told.shown(client, Waiting::Never, output).await
}

pub(super) async fn enable(args: &Enable, client: &Client, output: Output) -> Outcome<u8> {
    let told = each(&args.names, async |name| {
        client.edit_mcp_server(name, &enabled(true)).await
    });
    told.await.shown(client, args.wait.waiting(), output).await
}

pub(super) async fn disable(args: &Disable, client: &Client, output: Output) -> Outcome<u8> {
    let told = each(&args.names, async |name| {
        client.edit_mcp_server(name, &enabled(false)).await
    });
    told.await.shown(client, Waiting::Never, output).await
}

fn enabled(enabled: bool) -> EditMcpServerRequest {
    EditMcpServerRequest {
        enabled: Some(enabled),
        ..EditMcpServerRequest::default()
    }
}

struct Told {
    servers: Vec<McpServerInfo>,
    failure: Option<Failure>,
}

/// Goes through all of them and fails at the end with the first error: one wrong name must not keep the
/// others from being told.
async fn each(
    names: &Names,
    tell: impl AsyncFn(&McpServerName) -> Result<McpServerInfo, ClientError>,
) -> Told {
    let mut told = Told {
        servers: Vec::new(),
        failure: None,
    };
    for name in &names.names {
        match tell(name).await {
            Ok(server) => told.servers.push(server),
            Err(error) => {
                told.failure.get_or_insert(refused(error));
            }
        }
    }
    told
}

impl Told {
    async fn shown(self, client: &Client, waiting: Waiting, output: Output) -> Outcome<u8> {
        let code = match waiting {
            _ if self.servers.is_empty() => 0,
            Waiting::UntilSettled => settle(client, self.servers, waiting, output).await?,
            // Without waiting, only the state right after the request is known.
            Waiting::Never => {
                show(&self.servers, output)?;
                0
            }
        };
        self.failure.map_or(Ok(code), Err)
    }
}

fn show(servers: &[McpServerInfo], output: Output) -> Outcome<()> {
    if output.is_json() {
        return match servers {
            [one] => Output::json(one),
            several => Output::json(&several),
        };
    }
    for server in servers {
        Output::line(&outcome_line(server.name.as_str(), &server.runtime))?;
    }
    Ok(())
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
