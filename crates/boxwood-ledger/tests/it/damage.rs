use std::fs;
use std::path::Path;

use boxwood_ledger::Opened;

use crate::{as_left_by_a_killed_daemon, incarnations, known, open, row};

async fn sound(path: &Path) {
    let (ledger, _) = open(path).await;
    for incarnation in 1..=200 {
        let written = ledger.insert(row(incarnation, "s")).await;
        written.expect("there is room");
    }
    ledger.close().await;
}

/// Damages a ledger, and checks that it is renamed unchanged and replaced by a new one.
async fn check(what: &str, damage: impl FnOnce(&Path)) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    sound(&path).await;
    damage(&path);
    let before = fs::read(&path).expect("it is there");
    let (ledger, opened) = open(&path).await;
    let Opened::Damaged { moved_to, why } = opened else {
        panic!("{what}: {opened:?}");
    };
    assert!(!why.is_empty());
    let name = moved_to.file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with("ledger.db.damaged-"), "{what}: {name}");
    assert!(fs::read(&moved_to).expect("it is kept") == before, "{what}");
    assert!(incarnations(&ledger).await.is_empty(), "{what}");
    assert!(ledger.next_incarnation() > 200, "{what}");
    ledger.insert(row(500, "t")).await.expect("it can be used");
    ledger.close().await;
    assert_eq!(incarnations(&known(&path).await).await, [500], "{what}");
}

#[tokio::test]
async fn a_file_that_is_no_ledger_is_moved_aside() {
    check("garbage", |path| {
        fs::write(path, [0xA5; 9000]).expect("written");
    })
    .await;
    check("a text", |path| {
        fs::write(path, "not a database\n").expect("written");
    })
    .await;
    check("a garbage header", |path| {
        let mut bytes = fs::read(path).expect("read");
        bytes[..16].fill(0x5A);
        fs::write(path, bytes).expect("written");
    })
    .await;
    check("a database of another program", |path| {
        fs::remove_file(path).expect("removed");
        let other = rusqlite::Connection::open(path).expect("opened");
        let made = other.execute_batch("CREATE TABLE boxes (incarnation INTEGER)");
        made.expect("made");
    })
    .await;
}

#[tokio::test]
async fn an_incomplete_ledger_is_moved_aside() {
    check("its end is missing", |path| {
        let bytes = fs::read(path).expect("read");
        fs::write(path, &bytes[..bytes.len() / 2]).expect("written");
    })
    .await;
    check("no more than a piece of a header", |path| {
        let bytes = fs::read(path).expect("read");
        fs::write(path, &bytes[..50]).expect("written");
    })
    .await;
    check("a page is lost", |path| {
        let mut bytes = fs::read(path).expect("read");
        let middle = bytes.len() / 2 / 4096 * 4096;
        bytes[middle..middle + 4096].fill(0xFF);
        fs::write(path, bytes).expect("written");
    })
    .await;
}

#[tokio::test]
async fn a_ledger_with_unknown_tables_is_moved_aside() {
    let change = |statement: &'static str| {
        move |path: &Path| {
            let connection = rusqlite::Connection::open(path).expect("opened");
            connection.execute_batch(statement).expect("changed");
            drop(connection);
        }
    };
    check("a later version", change("PRAGMA user_version = 99")).await;
    check("a table is missing", change("DROP TABLE ended")).await;
    check(
        "a column has another name",
        change("ALTER TABLE boxes RENAME COLUMN spec TO specification"),
    )
    .await;
}

#[tokio::test]
async fn damage_twice_in_one_second_keeps_both() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let mut kept = Vec::new();
    for _ in 0..2 {
        fs::write(&path, [0xA5; 100]).expect("written");
        let (ledger, opened) = open(&path).await;
        let Opened::Damaged { moved_to, .. } = opened else {
            panic!("{opened:?}");
        };
        kept.push(moved_to);
        ledger.close().await;
    }
    assert_ne!(kept[0], kept[1]);
    assert!(kept.iter().all(|kept| kept.exists()));
}

#[tokio::test]
async fn an_unreadable_row_does_not_affect_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (ledger, _) = open(&path).await;
    for incarnation in 1..=3 {
        let written = ledger.insert(row(incarnation, "s")).await;
        written.expect("there is room");
    }
    ledger.close().await;
    let connection = rusqlite::Connection::open(&path).expect("opened");
    let changed = connection.execute("UPDATE boxes SET session = '' WHERE incarnation = 2", []);
    changed.expect("changed");
    drop(connection);
    assert_eq!(incarnations(&known(&path).await).await, [1, 3]);
}

#[tokio::test]
async fn files_left_by_a_removed_ledger_are_ignored() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (ledger, _) = open(&path).await;
    ledger.insert(row(1, "s")).await.expect("there is room");
    let left = as_left_by_a_killed_daemon(&path, directory.path());
    fs::remove_file(&left).expect("removed");
    let log = format!("{}-wal", left.display());
    assert!(fs::exists(log).expect("a look"), "the log is left");
    let (next, opened) = open(&left).await;
    assert!(!matches!(opened, Opened::InMemory { .. }), "{opened:?}");
    next.insert(row(2, "t")).await.expect("it can be used");
    next.close().await;
    assert!(incarnations(&known(&left).await).await.contains(&2));
}
