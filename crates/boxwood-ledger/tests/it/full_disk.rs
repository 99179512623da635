//! A disk without room is a real one here: a small file system of the test's own.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boxwood_ledger::{Ledger, LedgerError, Opened, State};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::{as_left_by_a_killed_daemon, id, incarnations, known, open, row};

struct SmallDisk {
    place: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let options = c"size=512k,mode=700";
        rustix::mount::mount("tmpfs", place.path(), "tmpfs", MountFlags::empty(), options)
            .expect("a tmpfs can be mounted: the test runs as root of its namespace");
        Self { place }
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("ledger.db")
    }

    /// To the last byte.
    fn fill(&self) {
        let mut filler = fs::File::create(self.place.path().join("filler")).expect("a file");
        for size in [4096, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.place.path().join("filler")).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.place.path(), UnmountFlags::DETACH);
    }
}

/// As root the test mounts; as anybody else it runs once more, as root of a user namespace.
fn with_small_disk<F: Future<Output = ()>>(test: &str, work: impl FnOnce(SmallDisk) -> F) {
    if !rustix::process::geteuid().is_root() {
        let again = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "--"])
            .arg(std::env::current_exe().expect("this program"))
            .args(["--exact", test, "--nocapture"])
            .status()
            .expect("`unshare` of util-linux is installed");
        assert!(again.success(), "it failed as root of a user namespace");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let disk = SmallDisk::mount();
    runtime.expect("a runtime").block_on(work(disk));
}

/// Writes until there is no room, and says how many were written.
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

fn file_names(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn without_room_nothing_new_is_written_and_no_end_is_forgotten() {
    let name = "full_disk::without_room_nothing_new_is_written_and_no_end_is_forgotten";
    with_small_disk(name, async |disk| {
        let elsewhere = tempfile::tempdir().expect("a directory");
        let (ledger, _) = open(&disk.path()).await;
        for incarnation in 1..=5 {
            let written = ledger.insert(row(incarnation, "s")).await;
            written.expect("there is room");
        }
        disk.fill();
        let more = write_until_full(&ledger, 6).await;

        // What lives goes on, and what ends is known at once.
        ledger.end(&id("s"), 1, "deleted").await;
        ledger.ready(2);
        ledger.end(&id("s"), 3, "its box died").await;
        let end = ledger.end_of(&id("s"), 3).expect("known");
        assert_eq!(end.why, "its box died");

        // Who comes after a crash finds a sound ledger, however far behind.
        let copy = as_left_by_a_killed_daemon(&disk.path(), elsewhere.path());
        let behind = incarnations(&known(&copy).await).await;
        assert_eq!(behind, (1..=5 + more).collect::<Vec<_>>());

        disk.make_room();
        // Nobody asks for anything: it catches up by itself.
        let caught_up = async {
            loop {
                let copy = as_left_by_a_killed_daemon(&disk.path(), elsewhere.path());
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
        let ledger = known(&disk.path()).await;
        assert_eq!(ledger.end_of(&id("s"), 1).expect("written").why, "deleted");
        let rows = ledger.rows().await.expect("rows");
        assert_eq!((rows[0].incarnation, rows[0].state), (2, State::Ready));
    });
}

#[test]
fn a_ledger_on_a_full_disk_is_opened_and_read() {
    let name = "full_disk::a_ledger_on_a_full_disk_is_opened_and_read";
    with_small_disk(name, async |disk| {
        let elsewhere = tempfile::tempdir().expect("a directory");
        let (ledger, _) = open(&disk.path()).await;
        ledger.insert(row(1, "s")).await.expect("there is room");
        disk.fill();
        write_until_full(&ledger, 2).await;
        let left = as_left_by_a_killed_daemon(&disk.path(), elsewhere.path());
        ledger.close().await;
        drop(ledger);
        // As the killed daemon left it, on the disk that is still full.
        for suffix in ["", "-wal"] {
            let from = format!("{}{suffix}", left.display());
            let to = format!("{}{suffix}", disk.path().display());
            if Path::new(&from).exists() {
                disk.make_room();
                fs::copy(from, to).expect("copied");
                disk.fill();
            }
        }
        let ledger = known(&disk.path()).await;
        assert!(incarnations(&ledger).await.contains(&1));
        ledger.end(&id("s"), 1, "deleted").await;
        assert!(ledger.ended(&id("s")).is_some());
    });
}

#[test]
fn without_room_for_so_much_as_an_empty_one_it_is_kept_in_memory() {
    let name = "full_disk::without_room_for_so_much_as_an_empty_one_it_is_kept_in_memory";
    with_small_disk(name, async |disk| {
        disk.fill();
        let (ledger, opened) = open(&disk.path()).await;
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
        assert_eq!(incarnations(&known(&disk.path()).await).await, [40, 42]);
        let left = file_names(disk.place.path());
        assert!(!left.iter().any(|name| name.contains(".new")), "{left:?}");
    });
}
