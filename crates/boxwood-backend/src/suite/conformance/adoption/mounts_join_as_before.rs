//! Directories of the host that join a box, before and after.

use anyhow::ensure;
use boxwood_api::MountMode;
use serde_json::json;

use super::{adopt_one, remember};
use crate::Process;
use crate::suite::{Bench, Wish};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let source = bench.host_dir("early")?;
    std::fs::write(source.join("file"), "early")?;
    held.join(&source, "/workspace/early", MountMode::Ro)
        .await?;
    remember(&held, &json!({})).await?;
    Ok(Vec::new())
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let found = adopt_one(bench).await?;
    let source = bench.host_dir("late")?;
    std::fs::write(source.join("file"), "late")?;
    found
        .held
        .join(&source, "/workspace/late", MountMode::Ro)
        .await?;
    let said = found.held.says("cat late/file; ls -d early").await?;
    ensure!(said == "lateearly\n", "{said:?}");
    Ok(())
}
