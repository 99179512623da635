//! An MCP server with the tools, prompts and resources that the official conformance suite uses.
//!
//! Behaves as the suite expects, so that failures behind a gateway are failures of the gateway. Depends only on
//! the SDK, not on Boxwood.
//!
//! `conformance_server [--legacy] [--http ADDRESS]`: serves stdio, or Streamable HTTP at `http://ADDRESS/mcp`
//! with `--http`. Port 0 selects a free port, which is printed. `--legacy` supports only legacy protocol versions.
#![expect(
    deprecated,
    reason = "the suite still uses sampling, roots and logging"
)]

mod asking;
mod completion;
mod prompts;
mod resources;
mod rounds;
mod server;
mod tasks;
mod tools;
mod until_end;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use server::{Fixture, Versions};
use tokio_util::sync::CancellationToken;
use until_end::UntilEnd;

const USAGE: &str = "usage: conformance_server [--legacy] [--http ADDRESS:PORT]";

/// Time for running requests to complete after the end of the input.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut versions = Versions::Both;
    let mut address = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--legacy" => versions = Versions::Legacy,
            "--http" => address = Some(arguments.next().ok_or(USAGE)?.parse()?),
            _ => return Err(USAGE.into()),
        }
    }
    let fixture = Fixture::new(versions);
    match address {
        Some(address) => serve_http(fixture, address).await,
        None => serve_stdio(fixture).await,
    }
}

async fn serve_stdio(fixture: Fixture) -> Result<(), Box<dyn Error>> {
    let (input, output) = rmcp::transport::stdio();
    let ended = CancellationToken::new();
    let input = UntilEnd {
        input,
        ended: ended.clone(),
    };
    let running = fixture.serve((input, output)).await?;
    let over = async {
        ended.cancelled().await;
        tokio::time::sleep(FINISH_TIMEOUT).await;
    };
    tokio::select! {
        quit = running.waiting() => drop(quit?),
        () = over => {}
    }
    Ok(())
}

async fn serve_http(fixture: Fixture, address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(
        move || Ok(fixture.clone()),
        sessions,
        rmcp::transport::StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let router = axum::Router::new().nest_service("/mcp", service);
    axum::serve(listener, router).await?;
    Ok(())
}
