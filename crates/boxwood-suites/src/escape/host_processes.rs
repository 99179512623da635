//! Processes of the host cannot be seen, signalled or read.

use anyhow::ensure;
use boxwood_api::{Mechanism, Network};

use crate::escape::attack::attack;
use crate::harness::case::cases;
use crate::harness::host_side::{HostProcess, marker};
use crate::{BoxSpec, Fixture};

cases! { "host_processes":
    cannot_see_or_signal_a_host_process,
    cannot_see_or_signal_a_host_process_with_the_network_on,
    cannot_read_the_daemons_environment,
}

async fn attack_host_processes(fixture: &Fixture, spec: &BoxSpec) -> anyhow::Result<()> {
    let argument_marker = marker("host-process");
    let mut process = HostProcess::start(&argument_marker)?;
    let test_box = fixture.start(spec).await?;
    attack!("host_processes", 12)
        .assert_refused(&test_box, &[&process.pid.to_string(), &argument_marker])
        .await?;
    test_box.assert_isolated().await?;
    // Where commands share the uid of the supervisor (see the label), they can stop their own box this way. Then only
    // the process of the host is checked.
    let separate = fixture.host().expects(Mechanism::SeparateInitUid);
    let attempts: &[&str] = if separate {
        &["kill -9 -1", "kill -STOP -1", "pkill -9 sh", "kill -9 0"]
    } else {
        &["kill -9 0", "kill -9 -1"]
    };
    for attempt in attempts {
        test_box.sh(attempt).await?;
        if separate {
            test_box.sh("kill -CONT -1").await?;
        }
    }
    process.is_untouched()?;
    test_box.assert_responsive().await
}

async fn cannot_see_or_signal_a_host_process(fixture: &Fixture) -> anyhow::Result<()> {
    attack_host_processes(fixture, &BoxSpec::new()).await
}

async fn cannot_see_or_signal_a_host_process_with_the_network_on(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    if !fixture.host().network {
        return super::network::refused(fixture).await;
    }
    attack_host_processes(fixture, &BoxSpec::new().network(Network::On)).await
}

async fn cannot_read_the_daemons_environment(fixture: &Fixture) -> anyhow::Result<()> {
    // The test itself is the daemon here. Its environment variables are the secrets, except short ones and those that
    // every box has.
    let own = std::fs::read("/proc/self/environ")?;
    let own = String::from_utf8_lossy(&own).into_owned();
    let canaries: Vec<&str> = own
        .split('\0')
        .filter(|pair| pair.len() > 12 && pair.starts_with(|c: char| c.is_ascii_uppercase()))
        .filter(|pair| {
            // Every box has these.
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
    let argument_marker = marker("daemon");
    let process = HostProcess::start(&argument_marker)?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let pid = process.pid.to_string();
    let args: Vec<&str> = [pid.as_str(), argument_marker.as_str()]
        .into_iter()
        .chain(canaries)
        .collect();
    attack!("host_processes", 12)
        .assert_refused(&test_box, &args)
        .await?;
    Ok(())
}
