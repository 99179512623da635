//! The tool filter applies to every way of listing and calling tools.

use serde_json::json;

use super::{Client, FakeServers, Versions};

#[tokio::test]
async fn a_hidden_tool_is_neither_listed_nor_called() {
    for (versions, server) in [
        (Versions::Both, "some"),
        (Versions::Legacy, "some"),
        (Versions::Legacy, "_all"),
    ] {
        let servers = FakeServers::with(&[("some", versions)]);
        let client = Client::new(&servers.gateway(), server);
        let prefix = if server == "_all" { "some__" } else { "" };
        let page = client.ask("tools/list", json!({})).await;
        let mut text = page.result()["tools"].to_string();
        if server != "_all" {
            let more = client.ask("tools/list", json!({"cursor": "more"})).await;
            text += &more.result()["tools"].to_string();
        }
        assert!(
            text.contains(&format!("{prefix}echo")) && text.contains("hang"),
            "{text}"
        );
        assert!(text.contains("\"later\":{\"kept\":true}"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let called = client.call(&format!("{prefix}secret"), json!({})).await;
        assert_eq!(called.error(), (200, -32602));
        assert!(
            servers
                .record("some")
                .received("main tools/call \"secret\"")
                .is_empty()
        );
    }
}
