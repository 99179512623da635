//! Generates random sequences of requests, events, crashes and restarts.

use boxwood_test_support::Point;
use proptest::collection::vec;
use proptest::prelude::*;

/// Few names, so that operations use the same sessions.
pub(crate) const SESSIONS: u8 = 3;
pub(crate) const PROCESSES: u8 = 2;

/// A request to the daemon, or an event while it runs.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A request for another kind than the session's is a conflict.
    Create {
        session: u8,
        kind: u8,
    },
    /// Makes the session when it is missing.
    Exec {
        session: u8,
        kind: u8,
        code: u8,
    },
    Start {
        session: u8,
        process: u8,
        replace: bool,
    },
    /// Sends input and reads its echo, which follows all earlier output.
    Send {
        session: u8,
        process: u8,
        bytes: u16,
    },
    /// Reads output again, from this percentage of the input size.
    Read {
        session: u8,
        process: u8,
        percent: u8,
    },
    Stop {
        session: u8,
        process: u8,
    },
    Delete {
        session: u8,
    },
    /// Uses the incarnation of an ended session.
    Stale {
        pick: u8,
    },
    /// All idle sessions expire.
    Expire,
    /// A process ends by itself.
    Ends {
        session: u8,
        process: u8,
        code: u8,
    },
    /// A box dies by itself.
    Dies {
        session: u8,
    },
}

/// What can happen while there is no daemon.
#[derive(Clone, Debug)]
pub(crate) enum Meanwhile {
    Ends { session: u8, process: u8, code: u8 },
    Dies { session: u8 },
    LedgerLost,
    LedgerDamaged,
}

/// When a daemon is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// After that many turns of its tasks.
    Turns(u8),
    /// When it gets to this point, if it does.
    At(Point),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Calm(Op),
    /// The daemon is killed, possibly during an operation, and another one starts. With `second_cut`, one more
    /// daemon is killed before that, while it adopts the boxes.
    Killed {
        during: Option<Op>,
        cut: Cut,
        meanwhile: Vec<Meanwhile>,
        second_cut: Option<Cut>,
    },
    /// A command is running when the daemon is killed.
    KilledWithExec {
        session: u8,
        cut: u8,
        code: u8,
        /// Whether it ends before the next daemon comes.
        early: bool,
    },
    /// The daemon detaches its boxes and exits; the next one adopts them.
    HandedOver,
}

fn op() -> impl Strategy<Value = Op> {
    let session = 0..SESSIONS;
    let process = 0..PROCESSES;
    prop_oneof![
        4 => (session.clone(), 0..5_u8).prop_map(|(session, kind)| Op::Create { session, kind: kind / 4 }),
        3 => (session.clone(), 0..5_u8, any::<u8>())
            .prop_map(|(session, kind, code)| Op::Exec { session, kind: kind / 4, code }),
        5 => (session.clone(), process.clone(), any::<bool>())
            .prop_map(|(session, process, replace)| Op::Start { session, process, replace }),
        5 => (session.clone(), process.clone(), 1..6000_u16)
            .prop_map(|(session, process, bytes)| Op::Send { session, process, bytes }),
        2 => (session.clone(), process.clone(), 0..=100_u8)
            .prop_map(|(session, process, percent)| Op::Read { session, process, percent }),
        2 => (session.clone(), process.clone())
            .prop_map(|(session, process)| Op::Stop { session, process }),
        2 => session.clone().prop_map(|session| Op::Delete { session }),
        1 => any::<u8>().prop_map(|pick| Op::Stale { pick }),
        1 => Just(Op::Expire),
        1 => (session.clone(), process, 0..100_u8)
            .prop_map(|(session, process, code)| Op::Ends { session, process, code }),
        1 => session.prop_map(|session| Op::Dies { session }),
    ]
}

fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    let session = 0..SESSIONS;
    prop_oneof![
        2 => (session.clone(), 0..PROCESSES, 0..100_u8)
            .prop_map(|(session, process, code)| Meanwhile::Ends { session, process, code }),
        1 => session.prop_map(|session| Meanwhile::Dies { session }),
        1 => Just(Meanwhile::LedgerLost),
        1 => Just(Meanwhile::LedgerDamaged),
    ]
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        2 => (0..60_u8).prop_map(Cut::Turns),
        1 => prop::sample::select(vec![
            Point::BeforeRecord,
            Point::AfterRecord,
            Point::Made,
            Point::BeforeRemember,
            Point::AfterRemember,
            Point::BeforeSpawn,
            Point::Spawned,
            Point::BeforeSignal,
            Point::BeforeStop,
            Point::Stopped,
        ]).prop_map(Cut::At),
    ]
}

fn cut_of_adoption() -> impl Strategy<Value = Cut> {
    prop_oneof![
        (0..60_u8).prop_map(Cut::Turns),
        prop::sample::select(vec![
            Point::BeforeAdopt,
            Point::Adopted,
            Point::BeforeSettle
        ])
        .prop_map(Cut::At),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => op().prop_map(Step::Calm),
        3 => (
            prop::option::weighted(0.8, op()),
            cut(),
            vec(meanwhile(), 0..3),
            prop::option::weighted(0.3, cut_of_adoption()),
        )
            .prop_map(|(during, cut, meanwhile, second_cut)| Step::Killed { during, cut, meanwhile, second_cut }),
        1 => (0..SESSIONS, 0..80_u8, 0..100_u8, any::<bool>())
            .prop_map(|(session, cut, code, early)| Step::KilledWithExec { session, cut, code, early }),
        1 => Just(Step::HandedOver),
    ]
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..20)
}
