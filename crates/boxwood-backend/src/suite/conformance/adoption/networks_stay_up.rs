//! Ways out that go on, for those who have one and for those who come later.

use anyhow::ensure;
use boxwood_api::Network;
use serde_json::json;

use super::{adopt_all, facts, remember};
use crate::Process;
use crate::suite::held::request;
use crate::suite::{Bench, HeldBox, Wish};

const ROUTES: &str = "cut -f2 /proc/net/route | grep -c 00000000";
/// Sends a question to the first name server, and tells whether the way there is open.
const ASK: &str = "import socket
server = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]
try:
    socket.create_connection((server, 53), 4)
    print('connected')
except ConnectionRefusedError:
    print('refused')
except OSError as fault:
    print(fault)";

/// A name server may be slow to answer once; whoever has no way out is never answered.
async fn asked(held: &HeldBox) -> anyhow::Result<String> {
    let mut said = String::new();
    for _ in 0..3 {
        said = held.run(request(&["python3", "-c", ASK])).await?.text()?;
        if matches!(said.as_str(), "connected\n" | "refused\n") {
            break;
        }
    }
    Ok(said)
}

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    if !bench.host().network {
        return Ok(Vec::new());
    }
    for _ in 0..2 {
        let held = bench.start(&Wish::new().network(Network::On)).await?;
        let facts = json!({ "answer": asked(&held).await? });
        remember(&held, &facts).await?;
    }
    Ok(Vec::new())
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    if !bench.host().network {
        return Ok(());
    }
    let found = adopt_all(bench).await?;
    ensure!(found.len() == 2, "{} boxes were left", found.len());
    let next = bench.start(&Wish::new().network(Network::On)).await?;
    for one in &found {
        ensure!(one.held.says(ROUTES).await? == "1\n");
        let (then, now) = (facts(one)?["answer"].clone(), asked(&one.held).await?);
        ensure!(then == now, "it was {then}, and is {now:?}");
    }
    ensure!(next.says(ROUTES).await? == "1\n");
    found[0].held.stop().await?;
    let then = facts(&found[1])?["answer"].clone();
    ensure!(
        then == asked(&found[1].held).await?,
        "it went with another box's"
    );
    Ok(())
}
