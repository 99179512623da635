use std::time::Duration;

use serde_json::{Value, json};

use super::{Fixture, Peer, fixture, raw};
use crate::wire::{
    CallError, ClientIdentity, CloseReason, Handshake, HandshakeError, Protocol, WireLimits,
    discover, handshake, ping,
};

const PATIENCE: Duration = Duration::from_secs(5);

async fn fail(peer: &mut Peer, request: &Value, error: &Value) {
    let id = &request["id"];
    peer.write_line(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
        .await;
}

#[tokio::test]
async fn the_legacy_handshake_ends_with_initialized() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let served = tokio::spawn(async move {
        let received = peer.receive().await;
        assert_eq!(received["method"], "initialize");
        assert_eq!(received["params"]["protocolVersion"], "2025-11-25");
        assert_eq!(received["params"]["capabilities"], json!({}));
        assert_eq!(received["params"]["clientInfo"]["name"], "boxwood");
        let result = r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{},"prompts":null},"serverInfo":{"name":"s","version":"1","x":1.0},"instructions":"be kind","new":[]}"#;
        peer.respond(&received, result).await;
        assert_eq!(peer.receive().await["method"], "notifications/initialized");
        peer
    });
    let handshake = handshake(&connection, &ClientIdentity::boxwood(), PATIENCE)
        .await
        .unwrap();
    let _peer = served.await.unwrap();
    assert_eq!(handshake.protocol, Protocol::Legacy);
    assert_eq!(handshake.protocol_version, "2024-11-05");
    assert_eq!(handshake.instructions.as_deref(), Some("be kind"));
    assert!(handshake.has("tools") && !handshake.has("prompts") && !handshake.has("resources"));
    let stored = serde_json::to_string(&handshake).unwrap();
    let kept: Handshake = serde_json::from_str(&stored).unwrap();
    assert_eq!(kept.result.get(), handshake.result.get());
    let info = kept.server_info.unwrap();
    assert_eq!(info.get(), r#"{"name":"s","version":"1","x":1.0}"#);
}

#[test]
fn a_long_server_info_is_shortened_to_its_names() {
    let shown = |info: Value| {
        let handshake = serde_json::json!({"era": "legacy", "protocol_version": "2025-11-25",
            "result": {}, "capabilities": {}, "server_info": info, "instructions": null});
        let handshake: Handshake = serde_json::from_str(&handshake.to_string()).unwrap();
        let short = handshake.short_info().unwrap();
        serde_json::from_str::<Value>(short.get()).unwrap()
    };
    let with = |icons: usize| serde_json::json!({"name": "s", "version": "1", "title": "t".repeat(2000), "icons": vec![0; icons]});
    assert_eq!(shown(with(1000)), with(1000));
    let names = serde_json::json!({"name": "s", "version": "1"});
    assert_eq!(shown(with(10_000)), names);
}

#[tokio::test]
async fn a_dedicated_process_gets_the_clients_initialize_parameters() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let own =
        raw(r#"{"protocolVersion":"2025-06-18","capabilities":{"x":{}},"clientInfo":{},"n":1}"#);
    let served = tokio::spawn(async move {
        let received = peer.receive().await;
        assert_eq!(received["params"]["capabilities"], json!({"x": {}}));
        assert_eq!(received["params"]["n"], 1);
        peer.respond(&received, r#"{"protocolVersion":"2025-06-18"}"#)
            .await;
        peer
    });
    let handshake = handshake(&connection, &ClientIdentity::client(own), PATIENCE).await;
    assert_eq!(handshake.unwrap().capabilities.get(), "{}");
    drop(served.await.unwrap());
}

#[tokio::test]
async fn a_modern_server_gets_server_discover() {
    let refusals = [
        json!({"code": -32601, "message": "no such method"}),
        json!({"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}),
        json!({"code": -32602, "message": "`_meta` is missing"}),
    ];
    for refusal in refusals {
        let Fixture {
            connection,
            mut peer,
            ..
        } = fixture(WireLimits::default());
        let served = tokio::spawn(async move {
            let received = peer.receive().await;
            fail(&mut peer, &received, &refusal).await;
            let received = peer.receive().await;
            assert_eq!(received["method"], "server/discover");
            let meta = &received["params"]["_meta"];
            assert_eq!(
                meta["io.modelcontextprotocol/protocolVersion"],
                "2026-07-28"
            );
            assert_eq!(
                meta["io.modelcontextprotocol/clientCapabilities"],
                json!({})
            );
            assert_eq!(
                meta["io.modelcontextprotocol/clientInfo"]["name"],
                "boxwood"
            );
            let result = r#"{"resultType":"complete","supportedVersions":["2025-11-25","2026-07-28","2027-01-01"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m"}}}"#;
            peer.respond(&received, result).await;
            peer
        });
        let handshake = handshake(&connection, &ClientIdentity::boxwood(), PATIENCE)
            .await
            .unwrap();
        assert_eq!(
            (handshake.protocol, &*handshake.protocol_version),
            (Protocol::Modern, "2026-07-28")
        );
        assert_eq!(handshake.server_info.unwrap().get(), r#"{"name":"m"}"#);
        drop(served.await.unwrap());
    }
}

#[tokio::test]
async fn a_refusal_has_the_servers_text() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let served = tokio::spawn(async move {
        let received = peer.receive().await;
        fail(
            &mut peer,
            &received,
            &json!({"code": -32601, "message": "first"}),
        )
        .await;
        let received = peer.receive().await;
        fail(
            &mut peer,
            &received,
            &json!({"code": -32601, "message": "second"}),
        )
        .await;
        let received = peer.receive().await;
        fail(
            &mut peer,
            &received,
            &json!({"code": 7, "message": "broken"}),
        )
        .await;
        let received = peer.receive().await;
        peer.respond(&received, r#"{"capabilities":{}}"#).await;
        peer
    });
    let client = ClientIdentity::boxwood();
    let refused = |code, message: &str| HandshakeError::Refused {
        method: "initialize",
        code,
        message: message.to_owned(),
    };
    let first = handshake(&connection, &client, PATIENCE).await.unwrap_err();
    assert_eq!(first, refused(-32601, "first"));
    let second = handshake(&connection, &client, PATIENCE).await.unwrap_err();
    assert_eq!(second, refused(7, "broken"));
    let third = handshake(&connection, &client, PATIENCE).await.unwrap_err();
    assert!(matches!(third, HandshakeError::Unreadable { .. }));
    drop(served.await.unwrap());
}

#[tokio::test]
async fn a_server_that_exits_or_does_not_respond_fails_the_handshake() {
    let Fixture {
        connection, peer, ..
    } = fixture(WireLimits::default());
    let short = Duration::from_millis(50);
    let silent = handshake(&connection, &ClientIdentity::boxwood(), short).await;
    let is_late = matches!(
        silent,
        Err(HandshakeError::Call(CallError::TimedOut { .. }))
    );
    assert!(is_late);
    let unknown = discover(&connection, &ClientIdentity::boxwood(), short).await;
    assert!(unknown.is_err());
    peer.exit(3);
    drop(peer);
    let gone = handshake(&connection, &ClientIdentity::boxwood(), PATIENCE).await;
    let expected = HandshakeError::Call(CallError::Closed(CloseReason::Exited(
        super::process_exit(3),
    )));
    assert_eq!(gone.unwrap_err(), expected);
    assert_eq!(expected.to_string(), "the server exited with exit code 3");
}

#[tokio::test]
async fn any_response_to_a_ping_counts() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let served = tokio::spawn(async move {
        let received = peer.receive().await;
        assert_eq!(received["method"], "ping");
        fail(
            &mut peer,
            &received,
            &json!({"code": -32601, "message": "no"}),
        )
        .await;
        let received = peer.receive().await;
        assert_eq!(received["method"], "server/discover");
        peer.respond(&received, "{}").await;
        peer
    });
    ping(&connection, Protocol::Legacy, PATIENCE).await.unwrap();
    ping(&connection, Protocol::Modern, PATIENCE).await.unwrap();
    let _peer = served.await.unwrap();
    let silent = ping(&connection, Protocol::Legacy, Duration::from_millis(50)).await;
    assert!(matches!(silent, Err(CallError::TimedOut { .. })));
    assert!(connection.since_last_message() >= Duration::from_millis(40));
}
