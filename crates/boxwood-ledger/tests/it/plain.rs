use boxwood_ledger::{Ledger, OpenError, Opened, State, current_boot};

use crate::{as_left_by_a_killed_daemon, id, incarnations, known, open, row};

#[tokio::test]
async fn rows_and_ends_are_there_after_a_close() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (ledger, opened) = open(&path).await;
    assert!(matches!(opened, Opened::Fresh), "{opened:?}");
    let first = ledger.next_incarnation();
    ledger.insert(row(first, "one")).await.expect("written");
    let second = ledger.next_incarnation();
    ledger.insert(row(second, "two")).await.expect("written");
    ledger.ready(second).await;
    ledger.end(&id("one"), first, "deleted").await;
    ledger.close().await;

    let ledger = known(&path).await;
    let rows = ledger.rows().await.expect("rows");
    let mut expected = row(second, "two");
    expected.state = State::Ready;
    assert_eq!(rows, [expected]);
    let end = ledger.end_of(&id("one"), first).expect("it ended");
    assert_eq!(end.why, "deleted");
    assert_eq!(ledger.end_of(&id("one"), second), None);
    assert!(ledger.next_incarnation() > second);
}

#[tokio::test]
async fn rows_and_ends_are_there_after_a_crash() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (ledger, _) = open(&path).await;
    let incarnation = ledger.next_incarnation();
    ledger.insert(row(incarnation, "s")).await.expect("written");
    let copy = as_left_by_a_killed_daemon(&path, directory.path());
    assert_eq!(incarnations(&known(&copy).await).await, [incarnation]);
    ledger.end(&id("s"), incarnation, "deleted").await;
    let copy = as_left_by_a_killed_daemon(&path, directory.path());
    let after = known(&copy).await;
    assert!(incarnations(&after).await.is_empty());
    assert!(after.end_of(&id("s"), incarnation).is_some());
}

#[tokio::test]
async fn an_incarnation_is_never_reused_even_if_the_ledger_is_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (ledger, _) = open(&path).await;
    let mut last = 0;
    for _ in 0..100 {
        last = ledger.next_incarnation();
    }
    ledger.insert(row(last, "s")).await.expect("written");
    assert!(ledger.has_assigned(last) && !ledger.has_assigned(last + 1));
    ledger.close().await;
    std::fs::remove_file(&path).expect("removed");
    let (ledger, opened) = open(&path).await;
    assert!(matches!(opened, Opened::Fresh), "{opened:?}");
    assert!(ledger.next_incarnation() > last);
    // A box that was found alive may have a later one yet.
    ledger.restore(row(last * 2, "s"));
    assert!(ledger.next_incarnation() > last * 2);
}

#[tokio::test]
async fn a_ledger_in_use_cannot_be_opened_by_a_second_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (first, _) = open(&path).await;
    first.insert(row(1, "s")).await.expect("written");
    match Ledger::open(&path).await {
        Err(OpenError::InUse { path: named }) => assert_eq!(named, path),
        Err(error) => panic!("{error}"),
        Ok((_, opened)) => panic!("a second one was opened: {opened:?}"),
    }
    // The one who had it is none the worse for it.
    first.insert(row(2, "t")).await.expect("written");
    drop(first);
    assert_eq!(incarnations(&known(&path).await).await, [1, 2]);
}

#[tokio::test]
async fn an_adopted_box_is_ready_and_belongs_to_the_current_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ledger, _) = open(&directory.path().join("ledger.db")).await;
    ledger.insert(row(7, "s")).await.expect("written");
    let mut adopted = row(7, "s");
    adopted.boot = current_boot().to_owned();
    adopted.state = State::Ready;
    ledger.restore(adopted.clone());
    assert_eq!(ledger.rows().await.expect("rows"), [adopted]);
}

#[tokio::test]
async fn a_limited_number_of_ends_is_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (ledger, _) = open(&path).await;
    for incarnation in 1..=4200 {
        ledger.end(&id("s"), incarnation, "deleted").await;
    }
    let check = |ledger: &Ledger| {
        assert!(ledger.end_of(&id("s"), 104).is_none());
        assert!(ledger.end_of(&id("s"), 105).is_some());
        assert!(ledger.end_of(&id("s"), 4200).is_some());
    };
    check(&ledger);
    ledger.close().await;
    check(&known(&path).await);
}

#[tokio::test]
async fn a_ledger_in_memory_writes_nothing() {
    let ledger = Ledger::in_memory();
    assert_eq!(ledger.next_incarnation(), 1);
    ledger.insert(row(1, "s")).await.expect("nothing to fail");
    ledger.end(&id("s"), 1, "deleted").await;
    assert!(incarnations(&ledger).await.is_empty());
    assert_eq!(
        ledger.end_of(&id("s"), 1).expect("remembered").why,
        "deleted"
    );
    ledger.close().await;
}

#[tokio::test]
async fn only_the_owner_can_read_the_ledger() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (ledger, _) = open(&path).await;
    ledger.insert(row(1, "s")).await.expect("written");
    for entry in std::fs::read_dir(directory.path()).expect("a directory") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("its state").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", entry.path().display());
    }
}
