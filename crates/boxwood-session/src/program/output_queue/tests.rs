use std::cell::Cell;

use futures_util::FutureExt as _;

use super::*;

struct Case {
    queue: OutputQueue,
    client: Cell<u64>,
}

impl Case {
    fn new() -> Self {
        let journal = Journal::new("stdout").expect("a journal");
        Self::of(journal)
    }

    fn of(journal: Journal) -> Self {
        let queue = OutputQueue::new(Arc::new(journal), REPLAY_BYTES);
        let client = Cell::new(queue.attach_for_lines());
        Self { queue, client }
    }

    fn push(&self, bytes: &[u8]) {
        self.queue.journal.append(bytes).expect("appended");
        self.queue.grown();
    }

    #[expect(clippy::option_option, reason = "not yet, never again, or a line")]
    fn next(&self) -> Option<Option<Vec<u8>>> {
        self.queue.next_line().now_or_never()
    }

    fn line(&self, expected: &[u8]) {
        let line = self.next().flatten().expect("a line");
        assert_eq!(
            String::from_utf8_lossy(&line),
            String::from_utf8_lossy(expected)
        );
    }

    fn attach(&self, since: Since) -> u64 {
        let (client, offset) = self.queue.attach_for_bytes(since).expect("kept");
        self.client.set(client);
        offset
    }

    fn bytes(&self, max_bytes: usize) -> Option<(u64, Vec<u8>)> {
        self.queue
            .next_bytes(self.client.get(), max_bytes)
            .now_or_never()
            .flatten()
    }

    /// What the next daemon has of it, after this one was killed.
    fn killed(self) -> Self {
        let files = self.queue.journal.files();
        let [writer, reader] = files.map(|file| file.try_clone().expect("a duplicate"));
        drop(self);
        Self::of(Journal::from_files(writer, reader).expect("a journal"))
    }
}

const KEPT: usize = 1024 * 1024;
const REPLAY_BYTES: u64 = 1024 * 1024;

#[test]
fn lines_are_complete_and_in_order() {
    let case = Case::new();
    case.push(b"one\n\ntwo\r\nthr");
    case.line(b"one");
    case.line(b"");
    case.line(b"two\r");
    assert_eq!(case.next(), None, "half a line is not a line");
    case.push(b"ee");
    case.queue.end();
    case.line(b"three");
    assert_eq!(case.next(), Some(None));
    assert!(!case.queue.has_undelivered());
}

#[test]
fn a_line_put_back_is_the_next_one() {
    let case = Case::new();
    case.push(b"one\ntwo\n");
    case.line(b"one");
    case.queue.put_back();
    case.line(b"one");
    case.line(b"two");
    case.queue.put_back();
    case.queue.end();
    assert!(case.queue.has_undelivered());
    case.line(b"two");
}

#[test]
fn a_full_queue_has_no_room_until_a_line_is_read() {
    let case = Case::new();
    case.push(&b"x\n".repeat(KEPT / 2));
    assert_eq!(case.queue.room_now(), 0);
    assert!(case.next().is_some());
    assert_eq!(case.queue.room_now(), 2);
}

#[test]
fn a_line_longer_than_the_queue_waits_for_a_client() {
    let case = Case::new();
    case.queue.detach(case.client.get());
    case.push(&vec![b'x'; KEPT]);
    assert_eq!(case.queue.room_now(), 0);
    case.client.set(case.queue.attach_for_lines());
    assert!(case.queue.room_now() > 0);
    case.push(b"y\n");
    assert_eq!(case.queue.room_now(), 0);
    let line = case.next().flatten().expect("the long line");
    assert_eq!(line.len(), KEPT + 1);
    assert!(line.ends_with(b"xy"));
}

#[test]
fn output_that_no_client_can_read_is_discarded() {
    let case = Case::new();
    case.push(&vec![b'x'; KEPT]);
    case.queue.abandon();
    assert!(case.queue.room_now() > 0, "the last client is served");
    assert!(case.queue.has_undelivered());
    case.queue.detach(case.client.get());
    assert_eq!(case.queue.room_now(), KEPT);
    case.queue.end();
    assert!(!case.queue.has_undelivered(), "the rest is discarded");
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
fn a_killed_daemon_repeats_only_the_undelivered_line() {
    let case = Case::new();
    case.push(b"one\ntwo\nthree\n");
    case.line(b"one");
    case.line(b"two");
    let case = case.killed();
    case.line(b"two");
    case.line(b"three");
    // The attachment is over, so its last line has arrived.
    case.queue.detach(case.client.get());
    let case = case.killed();
    assert_eq!(case.next(), None);
    case.push(b"four\n");
    case.line(b"four");
}

#[test]
fn bytes_can_be_read_again_from_any_offset_that_is_kept() {
    let case = Case::new();
    case.push(b"0123456789");
    assert_eq!(case.attach(Since::Now), 0);
    assert_eq!(case.bytes(4), Some((0, b"0123".to_vec())));
    assert_eq!(case.bytes(100), Some((4, b"456789".to_vec())));
    assert_eq!(case.bytes(100), None);
    case.queue.detach(case.client.get());
    // The client saw seven of them; then the daemon was killed.
    let case = case.killed();
    assert_eq!(case.queue.find(Since::Now).expect("now"), 10);
    assert_eq!(case.attach(Since::Offset(7)), 7);
    case.push(b"ab");
    assert_eq!(case.bytes(100), Some((7, b"789ab".to_vec())));
    case.queue.end();
    assert_eq!(
        case.queue.next_bytes(case.client.get(), 1).now_or_never(),
        Some(None)
    );
}

#[test]
fn clients_of_bytes_and_lines_share_one_position() {
    let case = Case::new();
    case.push(b"one\ntwo\nthree\n");
    case.line(b"one");
    case.queue.detach(case.client.get());
    case.attach(Since::Now);
    assert_eq!(case.bytes(2), Some((4, b"tw".to_vec())));
    case.queue.detach(case.client.get());
    case.client.set(case.queue.attach_for_lines());
    case.line(b"o");
    case.line(b"three");
}

#[test]
fn replay_is_limited() {
    let case = Case::new();
    case.attach(Since::Now);
    let line = [b'x'; 999];
    for _ in 0..4000 {
        case.push(&[&line[..], b"\n"].concat());
        while case.bytes(AHEAD_BYTES).is_some() {}
    }
    let journal = &case.queue.journal;
    assert_eq!(journal.end(), 4_000_000);
    assert!(journal.kept_bytes() >= REPLAY_BYTES);
    assert!(journal.kept_bytes() <= REPLAY_BYTES + 64 * 1024);
}

#[test]
fn unacknowledged_bytes_are_kept_and_limit_what_is_handed_out() {
    let case = Case::new();
    case.attach(Since::Now);
    case.queue.acknowledge(case.client.get(), 0);
    let mut handed_out = 0;
    for _ in 0..4 {
        case.push(&b"a\n".repeat(KEPT / 4));
        while let Some((at, bytes)) = case.bytes(AHEAD_BYTES) {
            assert_eq!(at, handed_out);
            handed_out += bytes.len() as u64;
        }
    }
    assert_eq!(handed_out, REPLAY_BYTES);
    assert_eq!(case.queue.journal.start(), 0, "all are kept");
    case.queue.acknowledge(case.client.get(), 500_000);
    assert!(case.bytes(AHEAD_BYTES).is_some());
    while case.bytes(AHEAD_BYTES).is_some() {}
    let start = case.queue.journal.start();
    assert!((400_000..=500_000).contains(&start), "{start}");
}

#[test]
fn a_replaced_client_reads_nothing_more() {
    let case = Case::new();
    case.push(b"0123");
    case.attach(Since::Now);
    let first = case.client.get();
    assert_eq!(case.bytes(2), Some((0, b"01".to_vec())));
    case.attach(Since::Offset(0));
    assert_eq!(case.queue.next_bytes(first, 4).now_or_never(), Some(None));
    case.queue.acknowledge(first, 2);
    case.queue.detach(first);
    assert!(!case.queue.is_current(first));
    assert_eq!(case.bytes(4), Some((0, b"0123".to_vec())));
}

#[test]
fn a_client_that_is_replaced_while_it_starts_to_wait_is_woken() {
    let case = Case::new();
    let mut calls = 0;
    let next = case.queue.next(|_, _| {
        calls += 1;
        case.queue.changed.notify_waiters();
        Ok(if calls == 1 {
            Poll::Pending
        } else {
            Poll::Ready(None::<()>)
        })
    });
    assert_eq!(next.now_or_never(), Some(None));
}
