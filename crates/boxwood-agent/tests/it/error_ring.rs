use boxwood_agent::{ErrorRing, RECENT_ERRORS};
use boxwood_api::{AgentErrorRecord, ErrorCode};
use jiff::Timestamp;

fn record(message: &str) -> AgentErrorRecord {
    AgentErrorRecord {
        timestamp: Timestamp::UNIX_EPOCH,
        kind: ErrorCode::ValidationError,
        message: message.to_owned(),
        query_id: "7".to_owned(),
    }
}

#[test]
fn the_last_fifty_errors_are_kept_oldest_first() {
    let ring = ErrorRing::default();
    assert!(ring.is_empty());
    for number in 0..60 {
        ring.push(record(&number.to_string()));
    }
    let messages: Vec<String> = ring
        .list()
        .into_iter()
        .map(|record| record.message)
        .collect();
    let expected: Vec<String> = (10..60).map(|number| number.to_string()).collect();
    assert_eq!(messages, expected);
    assert_eq!(ring.len(), RECENT_ERRORS);
}

#[test]
fn a_message_of_any_length_takes_little_room() {
    let ring = ErrorRing::default();
    ring.push(record(&"x".repeat(1_000_000)));
    assert_eq!(ring.list()[0].message.len(), 4_000);
}

#[test]
fn a_new_error_is_added_once() {
    let ring = ErrorRing::default();
    for message in ["a", "b", "a", "b"] {
        ring.push_new(record(message));
    }
    assert_eq!(ring.len(), 2);
    let long = "x".repeat(1_000_000);
    assert!(ring.push_new(record(&long)));
    assert!(!ring.push_new(record(&long)));
}
