use super::budget::{MAX_NOTIFICATION_BYTES, MemoryBudget};
use super::*;

fn json(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn numbers(mut reader: Reader) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(event) = reader.next().await {
        numbers.push(event.number);
    }
    numbers
}

#[tokio::test]
async fn a_reader_continues_after_the_last_read_or_the_requested_event() {
    let event_stream = EventStream::default();
    for text in ["1", "2", "3"] {
        event_stream.push(EventKind::Notification, json(text));
    }
    event_stream.close();
    let mut first = event_stream.reader(None);
    assert_eq!(first.next().await.map(|event| event.number), Some(1));
    assert_eq!(numbers(event_stream.reader(None)).await, [2, 3]);
    assert_eq!(numbers(event_stream.reader(Some(0))).await, [1, 2, 3]);
    assert_eq!(numbers(event_stream.reader(Some(2))).await, [3]);
    assert!(event_stream.reader_after(3).is_some() && event_stream.reader_after(4).is_none());
    assert!(first.next().await.is_none(), "another reads");
}

#[tokio::test]
async fn notifications_are_dropped_before_responses() {
    let event_stream = EventStream::default();
    event_stream.push(EventKind::Response, json("first"));
    for number in 0..10 * MAX_EVENTS {
        event_stream.push(EventKind::Notification, json(&number.to_string()));
    }
    let count = event_stream.state().events.len();
    assert_eq!(count, MAX_EVENTS);
    let big = Bytes::from(vec![b'x'; MAX_BYTES + 1]);
    event_stream.push(EventKind::Response, big);
    event_stream.close();
    assert!(!event_stream.is_backlogged());
    assert_eq!(numbers(event_stream.reader(None)).await, [1, 2562]);
}

#[tokio::test]
async fn events_of_a_stream_that_cannot_be_resumed_are_dropped_once_read() {
    let event_stream = EventStream::new(ClientBudget::default(), Mode::ReadOnce);
    event_stream.push(EventKind::Notification, json("1"));
    event_stream.push(EventKind::Response, json("2"));
    event_stream.close();
    assert_eq!(numbers(event_stream.reader(Some(0))).await, [1, 2]);
    assert_eq!(event_stream.bytes(), 0);
    assert!(!event_stream.is_backlogged());
}

#[tokio::test]
async fn read_events_are_dropped_first() {
    let event_stream = EventStream::default();
    for _ in 0..3 {
        event_stream.push(
            EventKind::Response,
            Bytes::from(vec![b'x'; MAX_BACKLOG_BYTES / 2]),
        );
    }
    assert!(event_stream.is_backlogged());
    event_stream.close();
    assert_eq!(numbers(event_stream.reader(None)).await, [1, 2, 3]);
    assert!(!event_stream.is_backlogged());
    assert_eq!(event_stream.state().events.len(), 1);
}

#[tokio::test]
async fn many_unread_responses_are_a_backlog_and_notifications_are_not() {
    let event_stream = EventStream::default();
    for _ in 0..2 * MAX_UNREAD {
        event_stream.push(EventKind::Notification, json("{}"));
    }
    for _ in 0..MAX_UNREAD {
        assert!(!event_stream.is_backlogged());
        event_stream.push(EventKind::Response, json("{}"));
    }
    assert!(event_stream.is_backlogged());
    let mut reader = event_stream.reader(None);
    reader.next().await.expect("an answer");
    assert!(!event_stream.is_backlogged());
    event_stream.close();
    assert_eq!(numbers(reader).await.len(), MAX_UNREAD - 1);
    // Replayed events do not count as unread.
    assert_eq!(
        numbers(event_stream.reader(Some(0))).await.len(),
        MAX_EVENTS
    );
    assert_eq!(event_stream.state().unread(), (0, 0));
}

#[tokio::test]
async fn the_first_event_decides_between_json_and_a_stream() {
    let plain = EventStream::default();
    plain.push(EventKind::Response, json("{}"));
    plain.close();
    let FirstOutput::Response(answer) = plain.first_output().await else {
        panic!("a response");
    };
    assert_eq!(answer.json, json("{}"));

    let notified = EventStream::default();
    notified.push(EventKind::Notification, json("{}"));
    assert!(matches!(notified.first_output().await, FirstOutput::Stream));
}

#[tokio::test]
async fn streams_of_one_client_share_its_budget() {
    let client_budget = MemoryBudget::new(4 * MAX_BYTES).of(None);
    let streams = [0, 1, 2].map(|_| EventStream::new(client_budget.clone(), Mode::Resumable));
    let result = || crate::gateway::json::raw(&"x".repeat(MAX_BYTES - 100));
    for event_stream in &streams {
        event_stream.answer(&Message::result(crate::gateway::json::raw(&1), result()));
    }
    let sizes = streams.iter().map(EventStream::bytes);
    assert!(sizes.sum::<usize>() <= 2 * MAX_BYTES + 1000);
    let last = &streams[2];
    last.close();
    let FirstOutput::Response(refused) = last.first_output().await else {
        panic!("a response");
    };
    let refused = String::from_utf8_lossy(&refused.json).into_owned();
    assert!(refused.contains("\"error\""), "{refused}");
    assert!(
        !last.push(EventKind::Notification, json("{}")),
        "it is closed"
    );
    let [_, second, _] = streams;
    assert!(!second.push(EventKind::Notification, Bytes::from(vec![b'x'; 1000])));
}

#[tokio::test]
async fn notifications_leave_room_for_responses() {
    let max_bytes = 16 * MAX_NOTIFICATION_BYTES;
    let client_budget = MemoryBudget::new(max_bytes).of(None);
    let streams: Vec<_> = (0..8)
        .map(|_| EventStream::new(client_budget.clone(), Mode::Resumable))
        .collect();
    let news = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
    assert!(!streams[0].push(EventKind::Notification, news(MAX_NOTIFICATION_BYTES + 1)));
    let pushed = streams.iter().filter(|event_stream| {
        event_stream.push(EventKind::Notification, news(MAX_NOTIFICATION_BYTES))
    });
    assert_eq!(pushed.count(), 4, "a quarter");
    let answer = || client_budget.reserve(news(4 * MAX_NOTIFICATION_BYTES));
    let unread = answer().expect("room for an answer");
    assert!(answer().is_none());
    drop(unread);

    streams[4].push(EventKind::Response, news(4 * MAX_NOTIFICATION_BYTES));
    assert!(answer().is_none());
    let mut reader = streams[4].reader(None);
    let read = reader.next().await.expect("it waits");
    assert!(answer().is_none(), "it is on its way");
    drop(read);
    assert!(answer().is_some(), "the stream is still there");
    let replayed = streams[4].reader(Some(0)).next().await;
    assert!(replayed.is_some(), "and so is what was read");
}

#[tokio::test]
async fn read_events_of_all_streams_are_bounded() {
    let client_budget = MemoryBudget::new(1 << 30).of(None);
    let streams: Vec<_> = (0..40)
        .map(|_| EventStream::new(client_budget.clone(), Mode::Resumable))
        .collect();
    for event_stream in &streams {
        let text = Bytes::from(vec![b'x'; MAX_BYTES - 1000]);
        event_stream.push(EventKind::Response, text);
        let mut reader = event_stream.reader(None);
        reader.next().await.expect("an event");
    }
    let has_events: Vec<_> = streams.iter().map(|stream| stream.bytes() > 0).collect();
    assert_eq!(has_events, [[true; 16].as_slice(), &[false; 24]].concat());
    let last = &streams[39];
    last.push(EventKind::Notification, json("{}"));
    last.close();
    assert_eq!(numbers(last.reader(Some(0))).await, [2]);
    drop(streams);
    assert!(client_budget.reserve_replay(MAX_BYTES).is_some());
}
