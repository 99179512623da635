//! The isolation label says what is in force, no more and no less.

use anyhow::{Context as _, bail, ensure};
use boxwood_api::{ErrorCode, Mechanism, MountMode, Network, NetworkIsolation};

use crate::suite::case::cases;
use crate::suite::held::request;
use crate::suite::{Bench, Offer, Wish};
use crate::{FileCall, MountError, Outcome, StartError, Stdio, TerminalSize};

cases! { "label":
    the_label_lists_what_is_expected,
    what_is_missing_has_a_reason,
    the_network_is_named,
    requiring_what_is_there_starts,
    requiring_what_is_missing_fails_closed,
    namespaces_in_the_label_are_real needs HostsOwnKernel,
    a_refused_call_is_named needs HostsOwnKernel,
    an_allowed_failure_names_nothing,
    the_probe_agrees_with_the_label,
    the_capabilities_are_what_is_offered,
    what_is_not_offered_is_refused,
}

async fn the_label_lists_what_is_expected(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let label = held.sandbox().label();
    ensure!(label.backend == bench.backend().name());
    let expected = bench.host().expected();
    ensure!(
        label.in_force == expected,
        "in force, in order: {:?}; expected: {expected:?}; missing: {:?}",
        label.in_force,
        label.missing
    );
    Ok(())
}

async fn what_is_missing_has_a_reason(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let label = held.sandbox().label();
    for mechanism in Mechanism::ALL {
        let missing: Vec<_> = label
            .missing
            .iter()
            .filter(|missing| missing.mechanism == mechanism)
            .collect();
        let listed = usize::from(label.has(mechanism)) + missing.len();
        ensure!(listed == 1, "`{mechanism:?}` is listed {listed} times");
        ensure!(
            missing.iter().all(|missing| missing.why.len() > 5),
            "{missing:?}"
        );
    }
    Ok(())
}

async fn the_network_is_named(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    ensure!(held.sandbox().label().network == NetworkIsolation::Off);
    let networked = bench.try_start(&Wish::new().network(Network::On)).await?;
    match (networked, bench.host().network) {
        (Ok(held), true) => {
            ensure!(held.sandbox().label().network == NetworkIsolation::Private);
            ensure!(held.sandbox().label().has(Mechanism::NetNamespace));
        }
        (Err(error), false) => ensure!(
            matches!(
                error,
                StartError::Unsupported { .. }
                    | StartError::Missing { .. }
                    | StartError::Unavailable { .. }
            ),
            "{error:?}"
        ),
        (Ok(_), false) => bail!("a network where none was expected"),
        (Err(error), true) => return Err(error).context("a networked box"),
    }
    Ok(())
}

async fn requiring_what_is_there_starts(bench: &Bench) -> anyhow::Result<()> {
    let mut wish = Wish::new();
    for mechanism in bench.host().expected() {
        wish = wish.require(mechanism);
    }
    bench.start(&wish).await?.is_well().await
}

async fn requiring_what_is_missing_fails_closed(bench: &Bench) -> anyhow::Result<()> {
    ensure!(!bench.host().absent.is_empty(), "no host has everything");
    for absence in &bench.host().absent {
        let answer = bench
            .try_start(&Wish::new().require(absence.mechanism))
            .await?;
        let Err(error) = answer else {
            bail!(
                "a box without `{:?}` started although it was required",
                absence.mechanism
            )
        };
        ensure!(error.code() == ErrorCode::ValidationError, "{error:?}");
        let StartError::Missing { mechanism, why } = error else {
            bail!("{error:?} instead of the missing mechanism")
        };
        ensure!(
            mechanism == absence.mechanism && !why.is_empty(),
            "{mechanism:?}: {why}"
        );
    }
    bench.start(&Wish::new()).await?.is_well().await
}

async fn namespaces_in_the_label_are_real(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let label = held.sandbox().label();
    for (mechanism, name) in [
        (Mechanism::UserNamespace, "user"),
        (Mechanism::MountNamespace, "mnt"),
        (Mechanism::PidNamespace, "pid"),
        (Mechanism::NetNamespace, "net"),
        (Mechanism::IpcNamespace, "ipc"),
        (Mechanism::UtsNamespace, "uts"),
        (Mechanism::CgroupNamespace, "cgroup"),
    ] {
        if !label.has(mechanism) {
            continue;
        }
        let inside = held.says(&format!("readlink /proc/self/ns/{name}")).await?;
        let outside = std::fs::read_link(format!("/proc/self/ns/{name}"))?;
        ensure!(
            inside.starts_with(&format!("{name}:[")) && inside.trim() != outside.to_string_lossy(),
            "{name}: {inside:?} inside, {} outside",
            outside.display()
        );
    }
    let status = held.says("cat /proc/self/status").await?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
            .unwrap_or_default()
            .to_owned()
    };
    if label.has(Mechanism::Seccomp) {
        ensure!(field("Seccomp:") == "2", "seccomp is {}", field("Seccomp:"));
    }
    if label.has(Mechanism::NoNewPrivileges) {
        ensure!(field("NoNewPrivs:") == "1");
    }
    if label.has(Mechanism::CapabilitiesDropped) {
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            ensure!(field(set) == "0000000000000000", "{set} {}", field(set));
        }
    }
    if label.has(Mechanism::SeparateInitUid) {
        let owner = held.sh("stat -c %u /proc/1").await?;
        ensure!(
            owner.out().trim() != "1000",
            "init runs as the commands' uid"
        );
    }
    Ok(())
}

/// A call by its raw number; prints nothing, fails as the kernel says.
fn calls(number: &str) -> String {
    format!(
        "import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(0 if libc.syscall({number}) >= 0 else 13)"
    )
}

async fn a_refused_call_is_named(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    ensure!(
        held.sandbox().label().has(Mechanism::Seccomp) == bench.host().expects(Mechanism::Seccomp)
    );
    if !bench.host().expects(Mechanism::Seccomp) {
        return Ok(());
    }
    let numbers = if cfg!(target_arch = "x86_64") {
        [
            ("mount", "165, b'a', b'/tmp', b'tmpfs', 0, 0"),
            ("bpf", "321, 0, 0, 0"),
            ("keyctl", "250, 0, -3, 1"),
        ]
    } else {
        [
            ("mount", "40, b'a', b'/tmp', b'tmpfs', 0, 0"),
            ("bpf", "280, 0, 0, 0"),
            ("keyctl", "219, 0, -3, 1"),
        ]
    };
    for (name, call) in numbers {
        let ran = held.run(request(&["python3", "-c", &calls(call)])).await?;
        ensure!(ran.code() != Some(0), "{name} was allowed");
        ensure!(
            ran.exit.denied_syscall.as_deref() == Some(name),
            "{name}: {:?}",
            ran.exit
        );
    }
    // By the usual tool, some generations down from the command itself.
    let ran = held.sh("sh -c 'unshare -U true'; exit 3").await?;
    ensure!(
        ran.code() == Some(3) && ran.exit.denied_syscall.as_deref() == Some("unshare"),
        "{:?}",
        ran.exit
    );
    Ok(())
}

async fn an_allowed_failure_names_nothing(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    held.sh("sh -c 'unshare -U true'").await?;
    let ran = held.sh("cat /nowhere; exit 5").await?;
    ensure!(ran.exit.denied_syscall.is_none(), "{:?}", ran.exit);
    Ok(())
}

async fn the_probe_agrees_with_the_label(bench: &Bench) -> anyhow::Result<()> {
    let capabilities = bench.backend().capabilities();
    for mechanism in bench.host().expected() {
        ensure!(
            capabilities.mechanisms.contains(&mechanism),
            "`{mechanism:?}` is in force and not among the backend's capabilities"
        );
    }
    ensure!(
        capabilities.network || !bench.host().network,
        "{capabilities:?}"
    );
    let probe = bench.backend().probe().await?;
    ensure!(!probe.findings.is_empty());
    for finding in &probe.findings {
        ensure!(
            !finding.name.is_empty() && !finding.matters.is_empty(),
            "{finding:?}"
        );
        match &finding.outcome {
            Outcome::Works { .. } => {}
            Outcome::Missing { why, fix } | Outcome::Fatal { why, fix } => {
                ensure!(!why.is_empty() && !fix.is_empty(), "{finding:?}");
            }
        }
        ensure!(
            !matches!(finding.outcome, Outcome::Fatal { .. }),
            "boxes start here, and the probe says they cannot: {finding:?}"
        );
        let Some(mechanism) = finding.mechanism else {
            continue;
        };
        let works = matches!(finding.outcome, Outcome::Works { .. });
        ensure!(
            works == bench.host().expects(mechanism),
            "the probe and the committed list disagree: {finding:?}"
        );
    }
    Ok(())
}

async fn the_capabilities_are_what_is_offered(bench: &Bench) -> anyhow::Result<()> {
    let capabilities = bench.backend().capabilities();
    for (offer, said) in [
        (Offer::Files, capabilities.files),
        (Offer::LiveMounts, capabilities.live_mounts),
        (Offer::Terminal, capabilities.pty),
        (Offer::Adoption, capabilities.adoption),
    ] {
        ensure!(
            said == bench.host().offers(offer),
            "{}: the backend says {said}",
            offer.name()
        );
    }
    Ok(())
}

/// A client that asks all the same gets an answer, and the box lives on.
async fn what_is_not_offered_is_refused(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let source = bench.host_dir("source")?;
    for missing in &bench.host().not_offered {
        let refused = match missing.offer {
            Offer::Files => {
                let path = "/".to_owned();
                let call = FileCall::Stat { path, follow: true };
                held.try_file(call).await?.is_err()
            }
            Offer::LiveMounts => {
                let joined = held
                    .try_join(&source, "/workspace/x", MountMode::Ro)
                    .await?;
                matches!(joined, Err(MountError::Unsupported))
            }
            Offer::Terminal => {
                let mut asked = request(&["true"]);
                asked.stdio = Stdio::Terminal(TerminalSize { rows: 24, cols: 80 });
                held.sandbox().spawn(asked).await.is_err()
            }
            Offer::Images => {
                let answer = bench.try_start(&Wish::new().image(&source)).await?;
                let error = answer.err().context("a box from an image")?;
                matches!(
                    error.code(),
                    ErrorCode::ImageNotFound | ErrorCode::ValidationError
                )
            }
            // Not something to ask for.
            Offer::Owners | Offer::HostsOwnKernel => true,
            Offer::Adoption => bench.backend().left_running().await.is_empty(),
            Offer::HostMounts => {
                let wish = Wish::new().workspace(&source, MountMode::Ro);
                let answer = bench.try_start(&wish).await?;
                matches!(answer, Err(StartError::Unsupported { .. }))
            }
        };
        ensure!(
            refused,
            "{} is not offered, and worked",
            missing.offer.name()
        );
    }
    held.is_well().await
}
