//! A tree of processes that grows for as long as it lives, and says so itself.
//!
//! No link of it lives for longer than some milliseconds: whoever looks through the host's processes
//! rarely meets one, and never by the second look. So each writes its number to a file, and a number
//! that stays is a tree that has ended.

use anyhow::{Context as _, ensure};

use super::HeldBox;

/// Whoever walks the tree is always one step behind. Its root stays, and does nothing.
pub(super) const GROWING: &str = "
import os, time
# For longer than a case may take; nobody else ends one that got away.
end = time.time() + 200
if os.fork() == 0:
    os.setsid()
    link = 0
    while time.time() < end:
        try:
            if os.fork() != 0: os._exit(0)
            link += 1
            if link >= 3:
                with open('grows', 'w') as file: file.write(str(link))
        except OSError: pass
        time.sleep(0.001)
time.sleep(600)";

/// Waits until it grows.
pub(super) async fn grows(held: &HeldBox) -> anyhow::Result<()> {
    let said = held.says("until [ -s grows ]; do sleep 0.02; done").await;
    said.map(drop).context("waiting for a tree that grows")
}

/// No link of it is left, in a box that goes on.
pub(super) async fn grows_no_more(held: &HeldBox) -> anyhow::Result<()> {
    let said = held
        .says("cat grows; echo; sleep 0.5; cat grows; echo")
        .await?;
    let mut looks = said.lines();
    let (before, after) = (looks.next(), looks.next());
    ensure!(
        before.is_some() && before == after,
        "the tree still grows: {said:?}"
    );
    Ok(())
}
