use futures_util::FutureExt as _;

use super::*;

struct Case {
    outlet: Outlet,
}

impl Case {
    fn new() -> Self {
        let journal = Journal::new("stdout").expect("a journal");
        Self::of(journal)
    }

    fn of(journal: Journal) -> Self {
        let outlet = Outlet::new(Arc::new(journal), ReplayLimits::default());
        outlet.attach_for_lines();
        Self { outlet }
    }

    fn push(&self, bytes: &[u8]) {
        self.outlet.journal.append(bytes).expect("taken in");
        self.outlet.grown();
    }

    #[expect(clippy::option_option, reason = "not yet, never again, or a line")]
    fn next(&self) -> Option<Option<Vec<u8>>> {
        self.outlet.next_line().now_or_never()
    }

    fn line(&self, expected: &[u8]) {
        let line = self.next().flatten().expect("a line");
        assert_eq!(
            String::from_utf8_lossy(&line),
            String::from_utf8_lossy(expected)
        );
    }

    fn bytes(&self, most: usize) -> Option<(u64, Vec<u8>)> {
        self.outlet.next_bytes(most).now_or_never().flatten()
    }

    /// What the next daemon has of it, after this one was killed.
    fn killed(self) -> Self {
        let files = self.outlet.journal.files();
        let [writer, reader] = files.map(|file| file.try_clone().expect("a duplicate"));
        drop(self);
        Self::of(Journal::from_files(writer, reader).expect("a journal"))
    }
}

const KEPT: usize = 1024 * 1024;

#[test]
fn lines_come_out_whole_and_in_order() {
    let case = Case::new();
    case.push(b"one\n\ntwo\r\nthr");
    case.line(b"one");
    case.line(b"");
    case.line(b"two\r");
    assert_eq!(case.next(), None, "half a line is not a line");
    case.push(b"ee");
    case.outlet.end();
    case.line(b"three");
    assert_eq!(case.next(), Some(None));
    assert!(!case.outlet.has_undelivered());
}

#[test]
fn a_line_put_back_is_the_next_one() {
    let case = Case::new();
    case.push(b"one\ntwo\n");
    case.line(b"one");
    case.outlet.put_back();
    case.line(b"one");
    case.line(b"two");
    case.outlet.put_back();
    case.outlet.end();
    assert!(case.outlet.has_undelivered());
    case.line(b"two");
}

#[test]
fn a_full_journal_has_no_room_until_a_line_is_taken() {
    let case = Case::new();
    case.push(&b"x\n".repeat(KEPT / 2));
    assert_eq!(case.outlet.room(), Room::None);
    assert!(case.next().is_some());
    assert_eq!(case.outlet.room(), Room::Some(2));
}

#[test]
fn a_line_longer_than_that_waits_for_an_attachment() {
    let case = Case::new();
    case.outlet.detach();
    case.push(&vec![b'x'; KEPT]);
    assert_eq!(case.outlet.room(), Room::None);
    case.outlet.attach_for_lines();
    assert!(matches!(case.outlet.room(), Room::Some(_)));
    case.push(b"y\n");
    assert_eq!(case.outlet.room(), Room::None);
    let line = case.next().flatten().expect("the long line");
    assert_eq!(line.len(), KEPT + 1);
    assert!(line.ends_with(b"xy"));
}

#[test]
fn what_nobody_can_take_is_not_waited_for() {
    let case = Case::new();
    case.push(&vec![b'x'; KEPT]);
    case.outlet.abandon();
    assert!(
        matches!(case.outlet.room(), Room::Some(_)),
        "the last attachment is served"
    );
    case.outlet.detach();
    assert_eq!(case.outlet.room(), Room::Abandoned);
}

#[test]
fn a_line_longer_than_a_read_ahead_is_one_line() {
    let case = Case::new();
    let long = vec![b'z'; AHEAD_BYTES * 3 + 5];
    case.push(b"short\n");
    case.push(&long);
    case.line(b"short");
    assert_eq!(case.next(), None);
    case.push(b"\nafter\n");
    case.line(&long);
    case.line(b"after");
}

#[test]
fn a_killed_daemon_repeats_the_line_that_was_on_its_way_and_no_other() {
    let case = Case::new();
    case.push(b"one\ntwo\nthree\n");
    case.line(b"one");
    case.line(b"two");
    let case = case.killed();
    case.line(b"two");
    case.line(b"three");
    // The attachment is over, so its last line has arrived.
    case.outlet.detach();
    let case = case.killed();
    assert_eq!(case.next(), None);
    case.push(b"four\n");
    case.line(b"four");
}

#[test]
fn bytes_can_be_had_again_from_any_place_that_is_kept() {
    let case = Case::new();
    case.push(b"0123456789");
    assert_eq!(case.outlet.attach_for_bytes(Since::Now).expect("now"), 0);
    assert_eq!(case.bytes(4), Some((0, b"0123".to_vec())));
    assert_eq!(case.bytes(100), Some((4, b"456789".to_vec())));
    assert_eq!(case.bytes(100), None);
    case.outlet.detach();
    // The client saw seven of them; then the daemon was killed.
    let case = case.killed();
    assert_eq!(case.outlet.find(Since::Now).expect("now"), 10);
    let at = case.outlet.attach_for_bytes(Since::Offset(7));
    assert_eq!(at.expect("kept"), 7);
    case.push(b"ab");
    assert_eq!(case.bytes(100), Some((7, b"789ab".to_vec())));
    case.outlet.end();
    assert_eq!(case.outlet.next_bytes(1).now_or_never(), Some(None));
}

#[test]
fn who_takes_bytes_and_who_takes_lines_share_one_place() {
    let case = Case::new();
    case.push(b"one\ntwo\nthree\n");
    case.line(b"one");
    case.outlet.detach();
    case.outlet.attach_for_bytes(Since::Now).expect("now");
    assert_eq!(case.bytes(2), Some((4, b"tw".to_vec())));
    case.outlet.detach();
    case.outlet.attach_for_lines();
    case.line(b"o");
    case.line(b"three");
}

#[test]
fn what_was_handed_out_is_kept_within_bounds() {
    let case = Case::new();
    case.outlet.attach_for_bytes(Since::Now).expect("now");
    let line = [b'x'; 999];
    for _ in 0..4000 {
        case.push(&[&line[..], b"\n"].concat());
        while case.bytes(AHEAD_BYTES).is_some() {}
    }
    let journal = &case.outlet.journal;
    assert_eq!(journal.end(), 4_000_000);
    let limit = ReplayLimits::default().bytes;
    assert!(journal.kept_bytes() >= limit);
    assert!(journal.kept_bytes() <= limit + 64 * 1024);
    // The next daemon counts lines from what is kept.
    let case = case.killed();
    case.outlet.attach_for_bytes(Since::Now).expect("now");
    for _ in 0..6000 {
        case.push(b"x\n");
        while case.bytes(AHEAD_BYTES).is_some() {}
    }
    let start = lock(&case.outlet.state).window.start(4_012_000);
    assert!(start > 4_000_000, "so many lines are too many: {start}");
}

#[test]
fn what_is_not_acknowledged_is_kept_and_bounds_what_is_handed_out() {
    let case = Case::new();
    case.outlet.attach_for_bytes(Since::Now).expect("now");
    case.outlet.acknowledge(0);
    let mut handed_out = 0;
    for _ in 0..4 {
        case.push(&b"a\n".repeat(KEPT / 4));
        while let Some((at, bytes)) = case.bytes(AHEAD_BYTES) {
            assert_eq!(at, handed_out);
            handed_out += bytes.len() as u64;
        }
    }
    assert_eq!(handed_out, ReplayLimits::default().bytes);
    assert_eq!(
        case.outlet.journal.start(),
        0,
        "so many lines, and all are kept"
    );
    case.outlet.acknowledge(500_000);
    assert!(case.outlet.journal.start() > 400_000);
    assert!(case.bytes(AHEAD_BYTES).is_some());
}
