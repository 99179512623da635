//! `boxwood profiles`: what a box may be.

use boxwood_api::ProfileInfo;
use boxwood_client::Client;

use super::wire_word;
use crate::failure::Outcome;
use crate::output::Output;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  boxwood profiles
  boxwood profiles -o json | jq '.[] | select(.name == \"default\")'";

/// List profiles
///
/// A profile gives a box its defaults, the fields that no caller can change (LOCKED) and the
/// isolation without which it does not start (REQUIRES). Operators define more of them in the
/// configuration file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn main(_: &Args, client: &Client, output: Output) -> Outcome<()> {
    let profiles = client.profiles().await?;
    output.table_or(&profiles, || table(&profiles))
}

fn table(profiles: &[ProfileInfo]) -> Table {
    let mut table = Table::new(&[
        "PROFILE", "NETWORK", "CPUS", "MEMORY", "PIDS", "ROOT", "TIMEOUT", "LOCKED", "REQUIRES",
    ]);
    for profile in profiles {
        let root = if profile.read_only_rootfs {
            "read-only"
        } else {
            "writable"
        };
        table.row([
            profile.name.as_str().into(),
            wire_word(&profile.network).into(),
            profile.cpus.to_string().into(),
            format!("{}M", profile.memory_mb).into(),
            profile.pids_limit.to_string().into(),
            root.into(),
            format!(
                "{}s, at most {}s",
                profile.timeout_sec, profile.max_timeout_sec
            )
            .into(),
            list(&profile.locked).into(),
            list(&profile.require).into(),
        ]);
    }
    table
}

fn list<T: serde::Serialize>(items: &[T]) -> String {
    if items.is_empty() {
        return "-".to_owned();
    }
    items.iter().map(wire_word).collect::<Vec<_>>().join(", ")
}
