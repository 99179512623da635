//! Random operations, compared with a model.

use std::collections::BTreeMap;

use boxwood_ledger::{Ledger, State};
use proptest::prelude::*;

use crate::{as_left_by_a_killed_daemon, known, open, row};

#[derive(Clone, Debug)]
enum Step {
    Insert { session: u8 },
    Restore { session: u8, ahead: u64 },
    Ready(usize),
    Adopt(usize),
    End(usize),
    Forget(usize),
    Reopen,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..8_usize;
    let step = prop_oneof![
        4 => (0..4_u8).prop_map(|session| Step::Insert { session }),
        1 => (0..4_u8, 0..5_u64).prop_map(|(session, ahead)| Step::Restore { session, ahead }),
        1 => which.clone().prop_map(Step::Ready),
        1 => which.clone().prop_map(Step::Adopt),
        2 => which.clone().prop_map(Step::End),
        1 => which.prop_map(Step::Forget),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..40)
}

async fn run(steps: Vec<Step>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let (mut ledger, _) = open(&path).await;
    let mut rows = BTreeMap::new();
    let mut ends = Vec::new();
    let mut highest = 0;
    for step in steps {
        let nth = |which: usize, rows: &BTreeMap<u64, _>| rows.keys().nth(which).copied();
        match step {
            Step::Insert { session } => {
                let incarnation = ledger.next_incarnation();
                assert!(incarnation > highest, "{incarnation} was given out before");
                highest = incarnation;
                let new = row(incarnation, &format!("s{session}"));
                ledger.insert(new.clone()).await.expect("there is room");
                rows.insert(incarnation, new);
            }
            Step::Restore { session, ahead } => {
                let incarnation = highest + 1 + ahead;
                highest = incarnation;
                let found = row(incarnation, &format!("s{session}"));
                ledger.restore(found.clone());
                rows.insert(incarnation, found);
            }
            Step::Ready(which) => {
                if let Some(incarnation) = nth(which, &rows) {
                    ledger.ready(incarnation).await;
                    rows.entry(incarnation)
                        .and_modify(|row| row.state = State::Ready);
                }
            }
            Step::Adopt(which) => {
                if let Some(incarnation) = nth(which, &rows) {
                    let row = rows.get_mut(&incarnation).expect("it is there");
                    row.boot = format!("after-{}", ends.len());
                    row.state = State::Ready;
                    ledger.restore(row.clone());
                }
            }
            Step::End(which) => {
                if let Some(incarnation) = nth(which, &rows) {
                    let row = rows.remove(&incarnation).expect("it is there");
                    let why = format!("the {}th", ends.len());
                    ledger.end(&row.session, incarnation, &why).await;
                    ends.push((row.session, incarnation, why));
                }
            }
            Step::Forget(which) => {
                if let Some(incarnation) = nth(which, &rows) {
                    ledger.forget(incarnation);
                    rows.remove(&incarnation);
                }
            }
            Step::Reopen => {
                ledger.close().await;
                drop(ledger);
                ledger = known(&path).await;
            }
            Step::Crash => {
                // Waits until earlier changes are on disk.
                let _ = ledger.rows().await;
                let copy = as_left_by_a_killed_daemon(&path, directory.path());
                let next = known(&copy).await;
                same(&next, &rows, &ends).await;
                next.close().await;
            }
        }
        same(&ledger, &rows, &ends).await;
    }
}

async fn same(
    ledger: &Ledger,
    rows: &BTreeMap<u64, boxwood_ledger::Row>,
    ends: &[(boxwood_api::SessionId, u64, String)],
) {
    let found = ledger.rows().await.expect("rows");
    assert_eq!(found, rows.values().cloned().collect::<Vec<_>>());
    for (session, incarnation, why) in ends {
        let end = ledger.end_of(session, *incarnation).expect("it ended");
        assert_eq!(end.why, *why);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_matches_its_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(run(steps));
    }
}
