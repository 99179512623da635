use super::super::budget::{Budget, LARGEST_NEWS};
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
async fn a_reader_goes_on_where_the_last_one_stopped_or_where_it_asks() {
    let outbox = Outbox::default();
    for text in ["1", "2", "3"] {
        outbox.push(Matter::News, json(text));
    }
    outbox.close();
    let mut first = outbox.reader(None);
    assert_eq!(first.next().await.map(|event| event.number), Some(1));
    assert_eq!(numbers(outbox.reader(None)).await, [2, 3]);
    assert_eq!(numbers(outbox.reader(Some(0))).await, [1, 2, 3]);
    assert_eq!(numbers(outbox.reader(Some(2))).await, [3]);
    assert!(outbox.reader_after(3).is_some() && outbox.reader_after(4).is_none());
    assert!(first.next().await.is_none(), "another reads");
}

#[tokio::test]
async fn news_is_lost_before_answers_and_the_bound_holds() {
    let outbox = Outbox::default();
    outbox.push(Matter::Answer, json("first"));
    for number in 0..10 * MOST_EVENTS {
        outbox.push(Matter::News, json(&number.to_string()));
    }
    let kept = outbox.state().events.len();
    assert_eq!(kept, MOST_EVENTS);
    let big = Bytes::from(vec![b'x'; MOST_BYTES + 1]);
    outbox.push(Matter::Answer, big);
    outbox.close();
    assert!(!outbox.is_overfull());
    assert_eq!(numbers(outbox.reader(None)).await, [1, 2562]);
}

#[tokio::test]
async fn what_nobody_can_come_back_for_is_gone_once_it_is_read() {
    let outbox = Outbox::passing(Purse::default());
    outbox.push(Matter::News, json("1"));
    outbox.push(Matter::Answer, json("2"));
    outbox.close();
    assert_eq!(numbers(outbox.reader(Some(0))).await, [1, 2]);
    assert_eq!(outbox.bytes(), 0);
    assert!(!outbox.is_overfull());
}

#[tokio::test]
async fn what_was_read_takes_no_room_for_long() {
    let outbox = Outbox::default();
    for _ in 0..3 {
        outbox.push(Matter::Answer, Bytes::from(vec![b'x'; OVERFULL / 2]));
    }
    assert!(outbox.is_overfull());
    outbox.close();
    assert_eq!(numbers(outbox.reader(None)).await, [1, 2, 3]);
    assert!(!outbox.is_overfull());
    assert_eq!(outbox.state().events.len(), 1);
}

#[tokio::test]
async fn many_answers_that_nobody_reads_are_too_many_and_news_are_none_of_them() {
    let outbox = Outbox::default();
    for _ in 0..2 * MOST_UNREAD {
        outbox.push(Matter::News, json("{}"));
    }
    for _ in 0..MOST_UNREAD {
        assert!(!outbox.is_overfull());
        outbox.push(Matter::Answer, json("{}"));
    }
    assert!(outbox.is_overfull());
    let mut reader = outbox.reader(None);
    reader.next().await.expect("an answer");
    assert!(!outbox.is_overfull());
    outbox.close();
    assert_eq!(numbers(reader).await.len(), MOST_UNREAD - 1);
    // What is read again was not unread.
    assert_eq!(numbers(outbox.reader(Some(0))).await.len(), MOST_EVENTS);
    let state = outbox.state();
    assert_eq!((state.unread, state.unread_bytes), (0, 0));
}

#[tokio::test]
async fn what_came_first_decides_how_the_answer_looks() {
    let plain = Outbox::default();
    plain.push(Matter::Answer, json("{}"));
    plain.close();
    let answers = vec![Purse::default().keep(json("{}")).expect("room")];
    assert_eq!(plain.settled().await, Settled::Answers(answers));

    let told = Outbox::default();
    told.push(Matter::News, json("{}"));
    assert_eq!(told.settled().await, Settled::Events);
}

#[tokio::test]
async fn clients_that_do_not_read_share_what_there_is() {
    let purse = Budget::new(4 * MOST_BYTES).of(None);
    let outboxes = [0, 1, 2].map(|_| Outbox::of(purse.clone()));
    let result = || super::super::json::raw(&"x".repeat(MOST_BYTES - 100));
    for outbox in &outboxes {
        outbox.answer(&Message::result(super::super::json::raw(&1), result()));
    }
    let kept = outboxes.iter().map(Outbox::bytes);
    assert!(kept.sum::<usize>() <= 2 * MOST_BYTES + 1000);
    let last = &outboxes[2];
    last.close();
    let refused = last.answers().await;
    let refused = String::from_utf8_lossy(&refused[0].json).into_owned();
    assert!(refused.contains("\"error\""), "{refused}");
    assert!(!last.push(Matter::News, json("{}")), "it is closed");
    let [_, second, _] = outboxes;
    assert!(!second.push(Matter::News, Bytes::from(vec![b'x'; 1000])));
}

#[tokio::test]
async fn news_leave_room_for_answers_and_what_was_read_takes_none() {
    let most = 16 * LARGEST_NEWS;
    let purse = Budget::new(most).of(None);
    let outboxes: Vec<_> = (0..8).map(|_| Outbox::of(purse.clone())).collect();
    let news = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
    assert!(!outboxes[0].push(Matter::News, news(LARGEST_NEWS + 1)));
    let pushed = outboxes
        .iter()
        .filter(|outbox| outbox.push(Matter::News, news(LARGEST_NEWS)));
    assert_eq!(pushed.count(), 4, "a quarter");
    let answer = || purse.keep(news(4 * LARGEST_NEWS));
    let unread = answer().expect("room for an answer");
    assert!(answer().is_none());
    drop(unread);

    outboxes[4].push(Matter::Answer, news(4 * LARGEST_NEWS));
    assert!(answer().is_none());
    let mut reader = outboxes[4].reader(None);
    let read = reader.next().await.expect("it waits");
    assert!(answer().is_none(), "it is on its way");
    drop(read);
    assert!(answer().is_some(), "the stream is still there");
    let again = outboxes[4].reader(Some(0)).next().await;
    assert!(again.is_some(), "and so is what was read");
}

#[tokio::test]
async fn what_was_read_of_all_streams_is_bounded_and_the_oldest_goes() {
    let purse = Budget::new(1 << 30).of(None);
    let outboxes: Vec<_> = (0..40).map(|_| Outbox::of(purse.clone())).collect();
    for outbox in &outboxes {
        let text = Bytes::from(vec![b'x'; MOST_BYTES - 1000]);
        outbox.push(Matter::Answer, text);
        let mut reader = outbox.reader(None);
        reader.next().await.expect("it waits");
    }
    let kept: Vec<_> = outboxes.iter().map(|outbox| outbox.bytes() > 0).collect();
    assert_eq!(kept, [[false; 24].as_slice(), &[true; 16]].concat());
    outboxes[0].push(Matter::News, json("{}"));
    outboxes[0].close();
    assert_eq!(numbers(outboxes[0].reader(Some(0))).await, [2]);
    assert_eq!(outboxes[0].bytes(), 2);
}
