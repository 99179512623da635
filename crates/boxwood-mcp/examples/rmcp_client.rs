//! A client based on the Rust SDK, for the tests: lists the tools of a server and calls one of them.
//!
//! Arguments: `URL legacy|modern TOOL ARGUMENTS`, with the tool's arguments as JSON. Prints one line of JSON with
//! the names of the tools and the result.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<String, Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [url, protocol, tool, arguments] = words.as_slice() else {
        return Err("usage: rmcp_client URL legacy|modern TOOL ARGUMENTS".into());
    };
    let lifecycle = match protocol.as_str() {
        "legacy" => ClientLifecycleMode::Initialize,
        "modern" => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        _ => return Err(format!("`{protocol}` is not `legacy` or `modern`").into()),
    };
    let transport = StreamableHttpClientTransport::from_uri(url.as_str());
    let client = ().serve_with_lifecycle(transport, lifecycle).await?;
    let tools = client.list_all_tools().await?;
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    let call =
        CallToolRequestParams::new(tool.clone()).with_arguments(serde_json::from_str(arguments)?);
    let result = client.call_tool(call).await?;
    let line = serde_json::json!({ "tools": names, "result": result }).to_string();
    client.cancel().await?;
    Ok(line)
}
