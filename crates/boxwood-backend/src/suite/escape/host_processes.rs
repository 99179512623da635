//! Processes of the host: unseen and untouched.

use anyhow::ensure;
use boxwood_api::{Mechanism, Network};

use crate::suite::attack::attack;
use crate::suite::case::cases;
use crate::suite::outside::{HostProcess, marker};
use crate::suite::{Bench, Wish};

cases! { "host_processes":
    cannot_see_or_signal_a_host_process,
    cannot_see_or_signal_a_host_process_with_the_network_on,
    cannot_read_the_daemons_environment,
}

async fn attacked(bench: &Bench, wish: &Wish) -> anyhow::Result<()> {
    let words = marker("host-process");
    let mut process = HostProcess::start(&words)?;
    let held = bench.start(wish).await?;
    attack!("host_processes", 12)
        .held(&held, &[&process.pid.to_string(), &words])
        .await?;
    held.has_walls().await?;
    // Where commands share the supervisor's uid (the label says so) they may stop their own box
    // this way; then only the host's process is looked at.
    let separate = bench.host().expects(Mechanism::SeparateInitUid);
    let attempts: &[&str] = if separate {
        &["kill -9 -1", "kill -STOP -1", "pkill -9 sh", "kill -9 0"]
    } else {
        &["kill -9 0", "kill -9 -1"]
    };
    for attempt in attempts {
        held.sh(attempt).await?;
        if separate {
            held.sh("kill -CONT -1").await?;
        }
    }
    process.is_untouched()?;
    held.is_well().await
}

async fn cannot_see_or_signal_a_host_process(bench: &Bench) -> anyhow::Result<()> {
    attacked(bench, &Wish::new()).await
}

async fn cannot_see_or_signal_a_host_process_with_the_network_on(
    bench: &Bench,
) -> anyhow::Result<()> {
    if !bench.host().network {
        return super::network::refused(bench).await;
    }
    attacked(bench, &Wish::new().network(Network::On)).await
}

async fn cannot_read_the_daemons_environment(bench: &Bench) -> anyhow::Result<()> {
    // The daemon of this test is the test itself. Its own variables serve as the secret: every
    // long value that a box has no business knowing.
    let own = std::fs::read("/proc/self/environ")?;
    let own = String::from_utf8_lossy(&own).into_owned();
    let canaries: Vec<&str> = own
        .split('\0')
        .filter(|pair| pair.len() > 12 && pair.starts_with(|c: char| c.is_ascii_uppercase()))
        .filter(|pair| {
            // What every box has by itself.
            ![
                "PATH=",
                "LANG=",
                "USER=",
                "HOME=",
                "SHELL=",
                "PIP_",
                "SSL_",
                "LC_",
                "PYTHON",
                "NODE_",
                "REQUESTS_",
                "CURL_",
            ]
            .iter()
            .any(|known| pair.starts_with(known))
        })
        .take(40)
        .collect();
    ensure!(!canaries.is_empty(), "the test has no environment to hide");
    let words = marker("daemon");
    let process = HostProcess::start(&words)?;
    let held = bench.start(&Wish::new()).await?;
    let pid = process.pid.to_string();
    let args: Vec<&str> = [pid.as_str(), words.as_str()]
        .into_iter()
        .chain(canaries)
        .collect();
    attack!("host_processes", 12).held(&held, &args).await?;
    Ok(())
}
