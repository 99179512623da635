//! A process tree that keeps forking and reports its progress.
//!
//! Each process lives for some milliseconds, so a scan of the host's processes rarely finds one. Each writes its number
//! to a file; when the number stops changing, the tree has ended.

use anyhow::{Context as _, ensure};

use crate::TestBox;

/// The newest process escapes every scan of the tree. The root process only sleeps.
pub(crate) const GROWING: &str = "
import os, time
# Longer than a case may take, so that a tree that escaped ends by itself.
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
pub(crate) async fn grows(test_box: &TestBox) -> anyhow::Result<()> {
    let text = test_box
        .stdout_of("until [ -s grows ]; do sleep 0.02; done")
        .await;
    text.map(drop).context("waiting for a tree that grows")
}

/// No process of it is left, in a box that continues.
pub(crate) async fn grows_no_more(test_box: &TestBox) -> anyhow::Result<()> {
    let text = test_box
        .stdout_of("cat grows; echo; sleep 0.5; cat grows; echo")
        .await?;
    let mut lines = text.lines();
    let (before, after) = (lines.next(), lines.next());
    ensure!(
        before.is_some() && before == after,
        "the tree still grows: {text:?}"
    );
    Ok(())
}
