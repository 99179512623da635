//! The isolation label says what is in force, no more and no less.

use anyhow::{Context as _, bail, ensure};
use boxwood_api::{ErrorCode, Mechanism, MountMode, Network, NetworkIsolation};

use crate::harness::case::cases;
use crate::harness::test_box::request;
use crate::{BoxSpec, Feature, Fixture};
use boxwood_backend::{FileCall, MountError, Outcome, StartError, Stdio, TerminalSize};

cases! { "label":
    the_label_lists_what_is_expected,
    what_is_missing_has_a_reason,
    the_network_is_named,
    requiring_what_is_there_starts,
    requiring_what_is_missing_fails_closed,
    namespaces_in_the_label_are_real needs HostKernel,
    a_refused_call_is_named needs HostKernel,
    an_allowed_failure_names_nothing,
    the_probe_agrees_with_the_label,
    the_capabilities_are_what_is_offered,
    what_is_not_offered_is_refused,
}

async fn the_label_lists_what_is_expected(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let label = test_box.sandbox().label();
    ensure!(label.backend == fixture.backend().name());
    let expected = fixture.host().expected();
    ensure!(
        label.in_force == expected,
        "in force, in order: {:?}; expected: {expected:?}; missing: {:?}",
        label.in_force,
        label.missing
    );
    Ok(())
}

async fn what_is_missing_has_a_reason(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let label = test_box.sandbox().label();
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

async fn the_network_is_named(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    ensure!(test_box.sandbox().label().network == NetworkIsolation::Off);
    let networked = fixture
        .try_start(&BoxSpec::new().network(Network::On))
        .await?;
    match (networked, fixture.host().network) {
        (Ok(test_box), true) => {
            ensure!(test_box.sandbox().label().network == NetworkIsolation::Private);
            ensure!(test_box.sandbox().label().has(Mechanism::NetNamespace));
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

async fn requiring_what_is_there_starts(fixture: &Fixture) -> anyhow::Result<()> {
    let mut spec = BoxSpec::new();
    for mechanism in fixture.host().expected() {
        spec = spec.require(mechanism);
    }
    fixture.start(&spec).await?.assert_responsive().await
}

async fn requiring_what_is_missing_fails_closed(fixture: &Fixture) -> anyhow::Result<()> {
    ensure!(
        !fixture.host().missing_mechanisms.is_empty(),
        "the committed list of missing mechanisms is empty, so nothing is tested"
    );
    for absence in &fixture.host().missing_mechanisms {
        let answer = fixture
            .try_start(&BoxSpec::new().require(absence.mechanism))
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
    fixture
        .start(&BoxSpec::new())
        .await?
        .assert_responsive()
        .await
}

async fn namespaces_in_the_label_are_real(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let label = test_box.sandbox().label();
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
        let inside = test_box
            .stdout_of(&format!("readlink /proc/self/ns/{name}"))
            .await?;
        let outside = std::fs::read_link(format!("/proc/self/ns/{name}"))?;
        ensure!(
            inside.starts_with(&format!("{name}:[")) && inside.trim() != outside.to_string_lossy(),
            "{name}: {inside:?} inside, {} outside",
            outside.display()
        );
    }
    let status = test_box.stdout_of("cat /proc/self/status").await?;
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
        let owner = test_box.sh("stat -c %u /proc/1").await?;
        ensure!(
            owner.out().trim() != "1000",
            "init runs as the commands' uid"
        );
    }
    Ok(())
}

/// A Python program that makes a system call, given by number and arguments, and exits with 13 if it fails.
fn system_call(call: &str) -> String {
    format!(
        "import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(0 if libc.syscall({call}) >= 0 else 13)"
    )
}

async fn a_refused_call_is_named(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    ensure!(
        test_box.sandbox().label().has(Mechanism::Seccomp)
            == fixture.host().expects(Mechanism::Seccomp)
    );
    if !fixture.host().expects(Mechanism::Seccomp) {
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
        let ran = test_box
            .run(request(&["python3", "-c", &system_call(call)]))
            .await?;
        ensure!(ran.code() != Some(0), "{name} was allowed");
        ensure!(
            ran.exit.denied_syscall.as_deref() == Some(name),
            "{name}: {:?}",
            ran.exit
        );
    }
    // Called by a child of the command.
    let ran = test_box.sh("sh -c 'unshare -U true'; exit 3").await?;
    ensure!(
        ran.code() == Some(3) && ran.exit.denied_syscall.as_deref() == Some("unshare"),
        "{:?}",
        ran.exit
    );
    Ok(())
}

async fn an_allowed_failure_names_nothing(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.sh("sh -c 'unshare -U true'").await?;
    let ran = test_box.sh("cat /nowhere; exit 5").await?;
    ensure!(ran.exit.denied_syscall.is_none(), "{:?}", ran.exit);
    Ok(())
}

async fn the_probe_agrees_with_the_label(fixture: &Fixture) -> anyhow::Result<()> {
    let capabilities = fixture.backend().capabilities();
    for mechanism in fixture.host().expected() {
        ensure!(
            capabilities.mechanisms.contains(&mechanism),
            "`{mechanism:?}` is in force and not among the backend's capabilities"
        );
    }
    ensure!(
        capabilities.network || !fixture.host().network,
        "{capabilities:?}"
    );
    let probe = fixture.backend().probe().await?;
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
            "the probe reports that boxes cannot start, but they do: {finding:?}"
        );
        let Some(mechanism) = finding.mechanism else {
            continue;
        };
        let works = matches!(finding.outcome, Outcome::Works { .. });
        ensure!(
            works == fixture.host().expects(mechanism),
            "the probe and the committed list disagree: {finding:?}"
        );
    }
    Ok(())
}

async fn the_capabilities_are_what_is_offered(fixture: &Fixture) -> anyhow::Result<()> {
    let capabilities = fixture.backend().capabilities();
    for (feature, reported) in [
        (Feature::Files, capabilities.files),
        (Feature::LiveMounts, capabilities.live_mounts),
        (Feature::Terminal, capabilities.pty),
        (Feature::Adoption, capabilities.adoption),
    ] {
        ensure!(
            reported == fixture.host().has_feature(feature),
            "{}: the backend says {reported}",
            feature.name()
        );
    }
    Ok(())
}

/// A request for a missing feature gets an error, and the box keeps running.
async fn what_is_not_offered_is_refused(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let source = fixture.host_dir("source")?;
    for missing in &fixture.host().missing_features {
        let refused = match missing.feature {
            Feature::Files => {
                let path = "/".to_owned();
                let call = FileCall::Stat { path, follow: true };
                test_box.try_file(call).await?.is_err()
            }
            Feature::LiveMounts => {
                let joined = test_box
                    .try_mount(&source, "/workspace/x", MountMode::Ro)
                    .await?;
                matches!(joined, Err(MountError::Unsupported))
            }
            Feature::Terminal => {
                let mut spawn_request = request(&["true"]);
                spawn_request.stdio = Stdio::Terminal(TerminalSize { rows: 24, cols: 80 });
                test_box.sandbox().spawn(spawn_request).await.is_err()
            }
            Feature::Images => {
                let answer = fixture.try_start(&BoxSpec::new().image(&source)).await?;
                let error = answer.err().context("a box started from an image")?;
                matches!(
                    error.code(),
                    ErrorCode::ImageNotFound | ErrorCode::ValidationError
                )
            }
            // Cannot be requested.
            Feature::Owners | Feature::HostKernel => true,
            Feature::Adoption => fixture.backend().left_running().await.is_empty(),
            Feature::HostMounts => {
                let spec = BoxSpec::new().workspace(&source, MountMode::Ro);
                let answer = fixture.try_start(&spec).await?;
                matches!(answer, Err(StartError::Unsupported { .. }))
            }
        };
        ensure!(
            refused,
            "`{}` is not offered, but the request was not refused",
            missing.feature.name()
        );
    }
    test_box.assert_responsive().await
}
