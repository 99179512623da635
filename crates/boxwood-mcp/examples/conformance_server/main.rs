//! An MCP server with everything that the official conformance suite asks for by name.
//!
//! Comes in: a client of either era on standard input, or over Streamable HTTP. Goes out: what the suite
//! expects, so that what it finds wrong behind a gateway is the gateway's. Never here: anything of ours; it
//! stands on the protocol's library alone.
//!
//! `conformance_server [--legacy] [--http ADDRESS]`: `--legacy` knows no revision without a handshake, and
//! `--http` serves at `http://ADDRESS/mcp`, where port 0 takes a free one and says which.
#![expect(
    deprecated,
    reason = "the suite still asks for sampling, roots and logging"
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

use server::{Eras, Fixture};
use tokio_util::sync::CancellationToken;
use until_end::UntilEnd;

const USAGE: &str = "usage: conformance_server [--legacy] [--http ADDRESS:PORT]";

/// What is under way when its input ends.
const TO_FINISH: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut eras = Eras::Both;
    let mut address = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--legacy" => eras = Eras::LegacyAlone,
            "--http" => address = Some(arguments.next().ok_or(USAGE)?.parse()?),
            _ => return Err(USAGE.into()),
        }
    }
    let fixture = Fixture::new(eras);
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
        tokio::time::sleep(TO_FINISH).await;
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
