//! One backend's column in the table of backends.
//!
//! Writes a JSON file for the documentation if the environment names a directory. It contains nothing that differs
//! between runs or machines.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use boxwood_api::{Mechanism, Network, NetworkIsolation};
use serde_json::{Value, json};

use crate::{BoxSpec, Fixture, Host};

/// Names the directory that columns are written to. Without it the column is only checked.
const DIRECTORY: &str = "BOXWOOD_TEST_MATRIX";

pub(crate) async fn write(fixture: &Fixture, column: &str) -> anyhow::Result<()> {
    let matrix = json!({
        "column": column,
        "backend": fixture.backend().name(),
        "mechanisms": mechanisms(fixture).await?,
        "network": network(fixture).await?,
        "root_inside": fixture.host().root_inside,
        "capabilities": capabilities(fixture),
        "not_offered": missing_features(fixture.host()),
    });
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return Ok(());
    };
    std::fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{column}.json"));
    std::fs::write(&path, format!("{matrix:#}\n"))
        .with_context(|| format!("writing {}", path.display()))
}

/// The mechanisms in the label of a default box. A missing one has the reason from the committed list, because that in
/// the label may contain a path of this machine.
async fn mechanisms(fixture: &Fixture) -> anyhow::Result<Value> {
    let plain = fixture.start(&BoxSpec::new()).await?;
    let bounded = fixture.start(&BoxSpec::new().read_only_root(true)).await?;
    let mut found = serde_json::Map::new();
    for mechanism in Mechanism::ALL {
        let [in_plain, in_bounded] =
            [&plain, &bounded].map(|test_box| test_box.sandbox().label().has(mechanism));
        ensure!(
            in_plain == fixture.host().expects(mechanism),
            "the label and the committed list disagree: `{mechanism}` in force is {in_plain} in the label"
        );
        let mut missing_mechanisms = fixture.host().missing_mechanisms.iter();
        let why = missing_mechanisms
            .find(|absence| absence.mechanism == mechanism)
            .map(|absence| absence.why);
        found.insert(
            mechanism.as_str().to_owned(),
            json!({ "in_force": in_plain, "with_read_only_root": in_bounded, "why": why }),
        );
    }
    Ok(Value::Object(found))
}

async fn network(fixture: &Fixture) -> anyhow::Result<&'static str> {
    let spec = BoxSpec::new().network(Network::On);
    let test_box = match fixture.try_start(&spec).await? {
        Ok(test_box) => test_box,
        Err(error) if fixture.host().network => {
            return Err(error).context("starting a networked box");
        }
        Err(_) => return Ok("refused"),
    };
    ensure!(
        test_box.sandbox().label().network == NetworkIsolation::Private,
        "the network is not the box's own"
    );
    Ok("private")
}

fn capabilities(fixture: &Fixture) -> Value {
    let capabilities = fixture.backend().capabilities();
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

fn missing_features(host: &Host) -> Value {
    host.missing_features
        .iter()
        .map(|missing| json!({ "offer": missing.feature.name(), "why": missing.why }))
        .collect()
}
