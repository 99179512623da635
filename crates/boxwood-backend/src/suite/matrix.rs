//! One backend's column in the table of backends.
//!
//! Comes in: a bench. Goes out: a JSON file for whoever makes the page, where the environment names a
//! directory for it. Never here: times, numbers of this machine, numbers of cases, or anything else
//! that differs from one run to the next or with every new case.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use boxwood_api::{Mechanism, Network, NetworkIsolation};
use serde_json::{Value, json};

use super::{Bench, Host, Wish};

/// Names the directory that columns are written to. Without it there is nothing to write, and what
/// goes into the column is looked at all the same.
const PLACE: &str = "BOXWOOD_TEST_MATRIX";

pub(super) async fn write(bench: &Bench, column: &str) -> anyhow::Result<()> {
    let seen = json!({
        "column": column,
        "backend": bench.backend().name(),
        "mechanisms": mechanisms(bench).await?,
        "network": network(bench).await?,
        "root_inside": bench.host().root_inside,
        "capabilities": capabilities(bench),
        "not_offered": not_offered(bench.host()),
    });
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
        return Ok(());
    };
    std::fs::create_dir_all(&place)?;
    let path = place.join(format!("{column}.json"));
    std::fs::write(&path, format!("{seen:#}\n"))
        .with_context(|| format!("writing {}", path.display()))
}

/// What a default box has, as its label says, and beside each absence the committed reason: the
/// label's own may name a path of this machine.
async fn mechanisms(bench: &Bench) -> anyhow::Result<Value> {
    let plain = bench.start(&Wish::new()).await?;
    let bounded = bench.start(&Wish::new().read_only_root(true)).await?;
    let mut found = serde_json::Map::new();
    for mechanism in Mechanism::ALL {
        let [in_plain, in_bounded] =
            [&plain, &bounded].map(|held| held.sandbox().label().has(mechanism));
        ensure!(
            in_plain == bench.host().expects(mechanism),
            "`{mechanism}` is {in_plain} in the label and the other way round in the committed list"
        );
        let mut absent = bench.host().absent.iter();
        let why = absent
            .find(|absence| absence.mechanism == mechanism)
            .map(|absence| absence.why);
        found.insert(
            mechanism.as_str().to_owned(),
            json!({ "in_force": in_plain, "with_read_only_root": in_bounded, "why": why }),
        );
    }
    Ok(Value::Object(found))
}

async fn network(bench: &Bench) -> anyhow::Result<&'static str> {
    let wish = Wish::new().network(Network::On);
    let Ok(held) = bench.try_start(&wish).await? else {
        ensure!(!bench.host().network, "a networked box does not start");
        return Ok("refused");
    };
    ensure!(
        held.sandbox().label().network == NetworkIsolation::Private,
        "the network is not the box's own"
    );
    Ok("private")
}

fn capabilities(bench: &Bench) -> Value {
    let capabilities = bench.backend().capabilities();
    json!({
        "pty": capabilities.pty,
        "managed_processes": capabilities.managed_processes,
        "files": capabilities.files,
        "network": capabilities.network,
        "host_mounts": capabilities.host_mounts,
        "live_mounts": capabilities.live_mounts,
        "adoption": capabilities.adoption,
    })
}

fn not_offered(host: &Host) -> Value {
    host.not_offered
        .iter()
        .map(|missing| json!({ "offer": missing.offer.name(), "why": missing.why }))
        .collect()
}
