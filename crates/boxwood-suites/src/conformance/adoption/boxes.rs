//! Adopted boxes as a whole: identity, mounts, network, pause and removal.

use super::{COMMANDS, adopt_all, adopt_one, end_of, facts, kept, remember};
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use anyhow::{Context as _, ensure};
use boxwood_api::{MountMode, Network};
use boxwood_backend::{AdoptError, ExitStatus, Process, Scope};
use serde_json::json;

pub(super) async fn identity_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.write("/workspace/file", b"before").await?;
    // A sub-group of its own that stays, and some that were used and are empty.
    test_box.stdout_of("(sleep 3004 &) >/dev/null 2>&1").await?;
    for _ in 0..3 {
        test_box.assert_responsive().await?;
    }
    let label = serde_json::to_value(test_box.sandbox().label())?;
    let facts = json!({ "id": test_box.sandbox().id(), "label": label });
    remember(&test_box, &json!({ "stale": true })).await?;
    remember(&test_box, &facts).await?;
    Ok(Vec::new())
}

pub(super) async fn identity_after(fixture: &Fixture) -> anyhow::Result<()> {
    let found = adopt_one(fixture).await?;
    let facts = facts(&found)?;
    let test_box = &found.test_box;
    ensure!(
        facts["id"] == test_box.sandbox().id(),
        "the box has another id"
    );
    let label = serde_json::to_value(test_box.sandbox().label())?;
    ensure!(
        facts["label"] == label,
        "the box has another label: {label}"
    );
    ensure!(test_box.read("/workspace/file").await? == b"before");
    ensure!(test_box.stdout_of(COMMANDS).await?.contains("sleep 3004"));
    test_box.assert_isolated().await?;
    for _ in 0..20 {
        test_box.assert_responsive().await?;
    }
    if fixture.host().counters {
        let hog = "import sys; x = bytearray(600 << 20); sys.exit(0)";
        let ran = test_box.run(request(&["python3", "-c", hog])).await?;
        ensure!(ran.exit.oom, "the memory limit is gone: {:?}", ran.exit);
    }
    // A neighbour that is started now shares nothing with it.
    let neighbour = fixture.start(&BoxSpec::new()).await?;
    neighbour.assert_isolated().await?;
    test_box.stop().await?;
    neighbour.assert_responsive().await
}

pub(super) async fn mounts_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let source = fixture.host_dir("early")?;
    std::fs::write(source.join("file"), "early")?;
    test_box
        .mount(&source, "/workspace/early", MountMode::Ro)
        .await?;
    remember(&test_box, &json!({})).await?;
    Ok(Vec::new())
}

pub(super) async fn mounts_after(fixture: &Fixture) -> anyhow::Result<()> {
    let found = adopt_one(fixture).await?;
    let source = fixture.host_dir("late")?;
    std::fs::write(source.join("file"), "late")?;
    found
        .test_box
        .mount(&source, "/workspace/late", MountMode::Ro)
        .await?;
    let text = found
        .test_box
        .stdout_of("cat late/file; ls -d early")
        .await?;
    ensure!(text == "lateearly\n", "{text:?}");
    Ok(())
}

const ROUTES: &str = "cut -f2 /proc/net/route | grep -c 00000000";
/// Queries the first name server, and returns whether it responds.
const ASK: &str = "import socket
server = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]
try:
    socket.create_connection((server, 53), 4)
    print('connected')
except ConnectionRefusedError:
    print('refused')
except OSError as fault:
    print(fault)";

/// A name server may be slow once. A box without network never gets an answer.
async fn network_answer(test_box: &TestBox) -> anyhow::Result<String> {
    let mut text = String::new();
    for _ in 0..3 {
        text = test_box
            .run(request(&["python3", "-c", ASK]))
            .await?
            .text()?;
        if matches!(text.as_str(), "connected\n" | "refused\n") {
            break;
        }
    }
    Ok(text)
}

pub(super) async fn networks_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    if !fixture.host().network {
        return Ok(Vec::new());
    }
    for _ in 0..2 {
        let test_box = fixture.start(&BoxSpec::new().network(Network::On)).await?;
        let facts = json!({ "answer": network_answer(&test_box).await? });
        remember(&test_box, &facts).await?;
    }
    Ok(Vec::new())
}

pub(super) async fn networks_after(fixture: &Fixture) -> anyhow::Result<()> {
    if !fixture.host().network {
        return Ok(());
    }
    let found = adopt_all(fixture).await?;
    ensure!(found.len() == 2, "{} boxes were left", found.len());
    let next = fixture.start(&BoxSpec::new().network(Network::On)).await?;
    for one in &found {
        ensure!(one.test_box.stdout_of(ROUTES).await? == "1\n");
        let (before, after) = (
            facts(one)?["answer"].clone(),
            network_answer(&one.test_box).await?,
        );
        ensure!(before == after, "it was {before}, and is {after:?}");
    }
    ensure!(next.stdout_of(ROUTES).await? == "1\n");
    found[0].test_box.stop().await?;
    let before = facts(&found[1])?["answer"].clone();
    ensure!(
        before == network_answer(&found[1].test_box).await?,
        "the network of a box ended with another box"
    );
    Ok(())
}

pub(super) async fn stop_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let process = test_box
        .process(kept(request(&["sleep", "3005"]), "sleep"))
        .await?;
    remember(&test_box, &json!({})).await?;
    Ok(vec![process])
}

pub(super) async fn stop_after(fixture: &Fixture) -> anyhow::Result<()> {
    let mut found = adopt_one(fixture).await?;
    let sleep = found.take("sleep")?;
    found.test_box.stop().await?;
    ensure!(end_of(&sleep.process.control).await?.status == ExitStatus::BoxGone);
    ensure!(!found.test_box.sandbox().is_alive());
    let left = fixture.backend().left_running().await;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

pub(super) async fn freeze_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let process = test_box
        .process(kept(request(&["sleep", "3006"]), "sleep"))
        .await?;
    remember(&test_box, &json!({})).await?;
    test_box.sandbox().freeze().await?;
    Ok(vec![process])
}

pub(super) async fn freeze_after(fixture: &Fixture) -> anyhow::Result<()> {
    let mut found = adopt_one(fixture).await?;
    // The daemon does this with every box that it adopts.
    found.test_box.sandbox().thaw().await?;
    let sleep = found.take("sleep")?;
    // A frozen program would not handle the signal.
    sleep.process.control.signal(15, Scope::Process).await?;
    let exit = end_of(&sleep.process.control).await?;
    ensure!(exit.status == ExitStatus::Signal(15), "{exit:?}");
    found.test_box.assert_responsive().await
}

pub(super) async fn removal_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let process = test_box
        .process(kept(request(&["sleep", "3006"]), "sleep"))
        .await?;
    remember(&test_box, &json!({})).await?;
    Ok(vec![process])
}

pub(super) async fn removal_after(fixture: &Fixture) -> anyhow::Result<()> {
    let left = fixture.backend().left_running().await;
    let handle = left.first().context("no box was left")?;
    fixture.backend().finish_adoption().await;
    let adopted = fixture.backend().adopt(handle).await;
    ensure!(matches!(adopted, Err(AdoptError::Gone)), "it was kept");
    let left = fixture.backend().left_running().await;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

pub(super) async fn unrecorded_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    fixture.start(&BoxSpec::new()).await?;
    Ok(Vec::new())
}

pub(super) async fn unrecorded_after(fixture: &Fixture) -> anyhow::Result<()> {
    let left = fixture.backend().left_running().await;
    let handle = left.first().context("no box was left")?;
    let adopted = fixture.backend().adopt(handle).await;
    ensure!(
        matches!(adopted, Err(AdoptError::Unfinished)),
        "it was adopted"
    );
    fixture.backend().finish_adoption().await;
    let adopted = fixture.backend().adopt(handle).await;
    ensure!(matches!(adopted, Err(AdoptError::Gone)), "it was kept");
    Ok(())
}
