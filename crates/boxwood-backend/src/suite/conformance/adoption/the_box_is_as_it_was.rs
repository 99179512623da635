//! Name, label, files, limits and walls.

use anyhow::ensure;
use serde_json::json;

use super::{COMMANDS, adopt_one, facts, remember};
use crate::Process;
use crate::suite::held::request;
use crate::suite::{Bench, Wish};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    held.write("/workspace/file", b"before").await?;
    // A sub-group of its own that stays, and some that were used and are empty.
    held.says("(sleep 3004 &) >/dev/null 2>&1").await?;
    for _ in 0..3 {
        held.is_well().await?;
    }
    let label = serde_json::to_value(held.sandbox().label())?;
    let facts = json!({ "id": held.sandbox().id(), "label": label });
    remember(&held, &json!({ "stale": true })).await?;
    remember(&held, &facts).await?;
    Ok(Vec::new())
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let found = adopt_one(bench).await?;
    let facts = facts(&found)?;
    let held = &found.held;
    ensure!(facts["id"] == held.sandbox().id(), "another name");
    let label = serde_json::to_value(held.sandbox().label())?;
    ensure!(facts["label"] == label, "another label: {label}");
    ensure!(held.read("/workspace/file").await? == b"before");
    ensure!(held.says(COMMANDS).await?.contains("sleep 3004"));
    held.has_walls().await?;
    for _ in 0..20 {
        held.is_well().await?;
    }
    if bench.host().counters {
        let hog = "import sys; x = bytearray(600 << 20); sys.exit(0)";
        let ran = held.run(request(&["python3", "-c", hog])).await?;
        ensure!(ran.exit.oom, "the memory limit is gone: {:?}", ran.exit);
    }
    // A neighbour that is started now shares nothing with it.
    let neighbour = bench.start(&Wish::new()).await?;
    neighbour.has_walls().await?;
    held.stop().await?;
    neighbour.is_well().await
}
