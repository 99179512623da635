use serde_json::json;

use super::{Fixture, fixture, raw};
use crate::wire::{CallOptions, InboundEvent, InboundFilter, Message, WireLimits};

fn method(event: &InboundEvent) -> &str {
    match event {
        InboundEvent::Message(message) => message.method().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_receivers_get_notifications_and_only_responders_get_requests() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let mut quiet = connection.inbound(InboundFilter::Notifications);
    let mut answering = connection.inbound(InboundFilter::All);
    peer.write_line(r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#)
        .await;
    peer.write_line(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1.0}}"#)
        .await;
    assert_eq!(method(&answering.next().await), "sampling/createMessage");
    assert_eq!(method(&answering.next().await), "notifications/message");
    assert_eq!(method(&quiet.next().await), "notifications/message");
    let answer = Message::result(raw("\"q\""), raw(r#"{"role":"assistant"}"#));
    connection.respond(answer).await.unwrap();
    assert_eq!(peer.receive().await["result"]["role"], "assistant");
}

#[tokio::test]
async fn a_request_without_a_responder_is_refused() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let _notifications_only = connection.inbound(InboundFilter::Notifications);
    peer.write_line(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#)
        .await;
    let received = peer.receive().await;
    assert_eq!(
        (&received["id"], &received["error"]["code"]),
        (&json!(1), &json!(-32601))
    );
    peer.write_line(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)
        .await;
    let received = peer.receive().await;
    assert_eq!(
        (&received["id"], &received["result"]),
        (&json!("p"), &json!({}))
    );
}

#[tokio::test]
async fn a_slow_receiver_loses_the_newest_messages_and_gets_their_number() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let mut slow = connection.inbound(InboundFilter::Notifications);
    for at in 0..300 {
        peer.write_line(&format!(r#"{{"jsonrpc":"2.0","method":"n/{at}"}}"#))
            .await;
    }
    // Everything before the response of this call was read.
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    let received = peer.receive().await;
    peer.respond(&received, "{}").await;
    call.await.unwrap().unwrap();
    assert!(matches!(slow.next().await, InboundEvent::Lagged(44)));
    for at in 0..256 {
        assert_eq!(method(&slow.next().await), format!("n/{at}"));
    }
    peer.output = None;
    assert!(matches!(slow.next().await, InboundEvent::Closed));
}

#[tokio::test]
async fn queued_messages_are_bounded_in_bytes() {
    let limits = WireLimits {
        line: 10_000,
        ..WireLimits::default()
    };
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(limits);
    let mut slow = connection.inbound(InboundFilter::All);
    let long = "x".repeat(4000);
    for _ in 0..5 {
        peer.write_line(&format!(
            r#"{{"jsonrpc":"2.0","method":"n","params":["{long}"]}}"#
        ))
        .await;
    }
    let request =
        format!(r#"{{"jsonrpc":"2.0","id":9,"method":"roots/list","params":["{long}"]}}"#);
    peer.write_line(&request).await;
    // The dropped request gets an error response.
    let received = peer.receive().await;
    assert_eq!(
        (&received["id"], &received["error"]["code"]),
        (&json!(9), &json!(-32603))
    );
    assert!(matches!(slow.next().await, InboundEvent::Lagged(1..)));
    let mut kept = 0;
    peer.output = None;
    while let InboundEvent::Message(_) = slow.next().await {
        kept += 1;
    }
    assert!((1..=3).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_relayed_response_comes_after_the_notifications_before_it_were_handled() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let mut forwarded = connection.inbound(InboundFilter::Forwarded);
    let calling = connection.clone();
    let request = Message::request(raw("1"), "m", None);
    let call = tokio::spawn(async move { calling.relay(request, CallOptions::default()).await });
    let received = peer.receive().await;
    peer.write_line(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#)
        .await;
    peer.respond(&received, "{}").await;
    assert_eq!(method(&forwarded.next().await), "notifications/message");
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!call.is_finished(), "the message is still being handled");
    tokio::select! {
        _ = forwarded.next() => panic!("no more messages"),
        answer = call => assert!(answer.unwrap().is_ok()),
    }
}
