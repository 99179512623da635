//! One tool call, through each gateway in turn.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::super::Effort;
use super::super::measure::sample::Samples;
use super::super::measure::table::{Measured, Row};
use super::client::McpClient;
use super::sides::{Direct, Project, host, mcp_proxy, supergateway};

const CALLS: usize = 2000;
const WARM_UP: usize = 50;

const NAME: &str = "bench";
const WHAT: &str = "tool call, what the gateway adds to the direct call";

pub(super) fn rows(binary: &Path, effort: Effort) -> Vec<Row> {
    let (supergateway, mcp_proxy, note) = match measure(binary, effort) {
        Ok(found) => found,
        Err(error) => (
            Measured::unknown(&error),
            Measured::unknown(&error),
            String::new(),
        ),
    };
    vec![
        Row {
            what: WHAT,
            against: "what supergateway 4.0.0 adds",
            at_most: Some(0.5),
            result: supergateway,
            note,
        },
        Row {
            what: WHAT,
            against: "what mcp-proxy 0.13.0 adds",
            at_most: Some(0.5),
            result: mcp_proxy,
            note: String::new(),
        },
    ]
}

fn measure(binary: &Path, effort: Effort) -> Result<(Measured, Measured, String)> {
    let project = Project::make()?;
    let daemon = project.daemon(binary)?;
    host(&daemon, &project, &[NAME.to_owned()])?;
    let node = supergateway(&project.script())?;
    let python = mcp_proxy(&project.script())?;

    let mut direct = Direct::start(&project.script())?;
    let mut ours = McpClient::open(daemon.address(), &format!("/mcp/{NAME}"))?;
    let mut supergateway = McpClient::open(node.address(), "/mcp")?;
    let mut mcp_proxy = McpClient::open(python.address(), "/mcp")?;
    for _ in 0..WARM_UP {
        direct.echo()?;
        ours.echo()?;
        supergateway.echo()?;
        mcp_proxy.echo()?;
    }
    let mut times = [(); 4].map(|()| Vec::new());
    for _ in 0..effort.of(CALLS) {
        for (side, times) in times.iter_mut().enumerate() {
            let started = std::time::Instant::now();
            match side {
                0 => direct.echo()?,
                1 => ours.echo()?,
                2 => supergateway.echo()?,
                _ => mcp_proxy.echo()?,
            }
            times.push(started.elapsed());
        }
    }
    let [direct, ours, supergateway, mcp_proxy] = times.map(Samples::from);
    let floor = direct.median();
    let note = format!(
        "medians of the whole call: direct {}, ours in its box {}, supergateway {}, mcp-proxy {}",
        shown(floor),
        shown(ours.median()),
        shown(supergateway.median()),
        shown(mcp_proxy.median()),
    );
    let ours = ours.less(floor);
    Ok((
        Measured::times(&ours, &supergateway.less(floor)),
        Measured::times(&ours, &mcp_proxy.less(floor)),
        note,
    ))
}

fn shown(time: Duration) -> String {
    format!("{} µs", time.as_micros())
}
