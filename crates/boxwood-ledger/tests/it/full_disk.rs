//! A full disk: a small file system that the test mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boxwood_ledger::{Ledger, LedgerError, Opened, State};
use boxwood_test_support::SmallDisk;

use crate::{as_left_by_a_killed_daemon, id, incarnations, known, open, row};

fn ledger_on(disk: &SmallDisk) -> PathBuf {
    disk.path().join("ledger.db")
}

/// Adds boxes until the disk is full, and returns their number.
async fn write_until_full(ledger: &Ledger, from: u64) -> u64 {
    for incarnation in from.. {
        match ledger.insert(row(incarnation, "s")).await {
            Ok(()) => {}
            Err(LedgerError::Full { directory }) => {
                assert!(directory.is_dir());
                return incarnation - from;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(incarnation < 100_000, "the disk never filled");
    }
    unreachable!("numbers do not end");
}

fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn on_a_full_disk_boxes_are_refused_and_ends_are_written_later() {
    let name = "full_disk::on_a_full_disk_boxes_are_refused_and_ends_are_written_later";
    SmallDisk::run(name, async |disk| {
        let elsewhere = tempfile::tempdir().expect("a directory");
        let (ledger, _) = open(&ledger_on(&disk)).await;
        for incarnation in 1..=5 {
            let written = ledger.insert(row(incarnation, "s")).await;
            written.expect("there is room");
        }
        disk.fill();
        let more = write_until_full(&ledger, 6).await;

        // What lives goes on, and what ends is known at once.
        ledger.end(&id("s"), 1, "deleted").await;
        ledger.ready(2).await;
        ledger.end(&id("s"), 3, "its box died").await;
        let end = ledger.end_of(&id("s"), 3).expect("known");
        assert_eq!(end.why, "its box died");

        // Who comes after a crash finds a sound ledger, however far behind.
        let copy = as_left_by_a_killed_daemon(&ledger_on(&disk), elsewhere.path());
        let behind = incarnations(&known(&copy).await).await;
        assert_eq!(behind, (1..=5 + more).collect::<Vec<_>>());

        disk.make_room();
        // Deferred changes are written without a request.
        let caught_up = async {
            loop {
                let copy = as_left_by_a_killed_daemon(&ledger_on(&disk), elsewhere.path());
                let after = incarnations(&known(&copy).await).await;
                if !after.contains(&3) {
                    break after;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let after = tokio::time::timeout(Duration::from_secs(20), caught_up).await;
        let after = after.expect("it caught up");
        assert!(!after.contains(&1), "{after:?}");
        ledger.insert(row(9000, "t")).await.expect("there is room");
        ledger.close().await;
        let ledger = known(&ledger_on(&disk)).await;
        assert_eq!(ledger.end_of(&id("s"), 1).expect("written").why, "deleted");
        let rows = ledger.rows().await.expect("rows");
        assert_eq!((rows[0].incarnation, rows[0].state), (2, State::Ready));
    });
}

#[test]
fn a_ledger_on_a_full_disk_is_opened_and_read() {
    let name = "full_disk::a_ledger_on_a_full_disk_is_opened_and_read";
    SmallDisk::run(name, async |disk| {
        let elsewhere = tempfile::tempdir().expect("a directory");
        let (ledger, _) = open(&ledger_on(&disk)).await;
        ledger.insert(row(1, "s")).await.expect("there is room");
        disk.fill();
        write_until_full(&ledger, 2).await;
        let left = as_left_by_a_killed_daemon(&ledger_on(&disk), elsewhere.path());
        ledger.close().await;
        drop(ledger);
        // As the killed daemon left it, on the disk that is still full.
        for suffix in ["", "-wal"] {
            let from = format!("{}{suffix}", left.display());
            let to = format!("{}{suffix}", ledger_on(&disk).display());
            if Path::new(&from).exists() {
                disk.make_room();
                fs::copy(from, to).expect("copied");
                disk.fill();
            }
        }
        let ledger = known(&ledger_on(&disk)).await;
        assert!(incarnations(&ledger).await.contains(&1));
        ledger.end(&id("s"), 1, "deleted").await;
        assert!(ledger.end_of(&id("s"), 1).is_some());
    });
}

#[test]
fn a_new_ledger_on_a_full_disk_is_kept_in_memory() {
    let name = "full_disk::a_new_ledger_on_a_full_disk_is_kept_in_memory";
    SmallDisk::run(name, async |disk| {
        disk.fill();
        let (ledger, opened) = open(&ledger_on(&disk)).await;
        let Opened::InMemory { why } = opened else {
            panic!("{opened:?}");
        };
        assert!(matches!(why, LedgerError::Full { .. }), "{why}");
        // What was found alive is known, and nothing new begins.
        ledger.restore(row(40, "found"));
        assert_eq!(incarnations(&ledger).await, [40]);
        let refused = ledger.insert(row(41, "new")).await;
        assert!(
            matches!(refused, Err(LedgerError::Full { .. })),
            "{refused:?}"
        );
        disk.make_room();
        ledger.insert(row(42, "new")).await.expect("there is room");
        ledger.close().await;
        assert_eq!(
            incarnations(&known(&ledger_on(&disk)).await).await,
            [40, 42]
        );
        let left = file_names(disk.path());
        assert!(!left.iter().any(|name| name.contains(".new")), "{left:?}");
    });
}
