//! The stdio transport with both protocol versions and a disabled sandbox.

use boxwood_agent::{Agent, AgentSettings};
use boxwood_mcp::{DefaultConversation, serve_lines};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
};

struct Client {
    input: WriteHalf<DuplexStream>,
    output: BufReader<ReadHalf<DuplexStream>>,
    server: tokio::task::JoinHandle<()>,
    next_id: u64,
}

impl Client {
    fn new() -> Self {
        let (client_end, server_end) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(server_end);
        let agent = Agent::disabled(AgentSettings::default());
        let default_conversation = DefaultConversation::Derived("test".to_owned());
        let server = tokio::spawn(async move {
            serve_lines(
                agent,
                default_conversation,
                read,
                write,
                std::future::pending(),
            )
            .await
            .expect("a clean end");
        });
        let (read, write) = tokio::io::split(client_end);
        Self {
            input: write,
            output: BufReader::new(read),
            server,
            next_id: 0,
        }
    }

    async fn send(&mut self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        self.input.write_all(line.as_bytes()).await.expect("write");
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request).await;
        let mut line = String::new();
        self.output.read_line(&mut line).await.expect("read");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn ask_modern(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        });
        self.ask(method, params).await
    }

    async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = self.ask("initialize", params).await;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send(&initialized).await;
        answer
    }

    async fn leave(mut self) {
        self.input.shutdown().await.expect("shutdown");
        drop(self.output);
        self.server.await.expect("server");
    }
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().expect("tools");
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

const TOOLS: [&str; 8] = [
    "activate",
    "edit",
    "exec",
    "glob",
    "grep",
    "read",
    "register_skill",
    "write",
];

fn assert_refused(answer: &Value) {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    assert_eq!(result.get("structuredContent"), None);
    let text = result["content"][0]["text"].as_str().expect("text");
    assert!(
        text.contains("disabled") && text.contains("box.enabled = true"),
        "{text}"
    );
    assert_eq!(result["_meta"]["io.boxwood/error"]["state"], "disabled");
}

#[tokio::test]
async fn legacy_clients_get_the_requested_protocol_version() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::new();
        let answer = client.initialize(version).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert_eq!(answer["result"]["serverInfo"]["name"], "boxwood");
        let instructions = answer["result"]["instructions"].as_str().expect("text");
        assert!(instructions.contains("box.enabled"), "{instructions}");
        client.leave().await;
    }
}

#[tokio::test]
async fn all_tools_are_listed_and_fail_while_the_sandbox_is_off() {
    let mut client = Client::new();
    client.initialize("2025-11-25").await;
    let listed = client.ask("tools/list", json!({})).await;
    let mut found = names(&listed);
    found.sort_unstable();
    assert_eq!(found, TOOLS);
    assert_eq!(
        listed["result"]["_meta"]["io.boxwood/unavailable"]["state"],
        "disabled"
    );
    for tool in listed["result"]["tools"].as_array().expect("tools") {
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{tool}");
        }
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
        assert!(tool["title"].is_string(), "{tool}");
    }
    let call = json!({"name": "exec", "arguments": {"command": "true"}});
    assert_refused(&client.ask("tools/call", call).await);
    let read = client
        .ask("resources/read", json!({"uri": "boxwood://workspace/a"}))
        .await;
    let message = read["error"]["message"].as_str().expect("message");
    assert!(message.contains("box.enabled = true"), "{message}");
    client.leave().await;
}

#[tokio::test]
async fn modern_clients_are_served_without_a_handshake() {
    let mut client = Client::new();
    let found = client.ask_modern("server/discover", json!({})).await;
    let versions = found["result"]["supportedVersions"]
        .as_array()
        .expect("list");
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let listed = client.ask_modern("tools/list", json!({})).await;
    assert_eq!(names(&listed).len(), TOOLS.len());
    assert_eq!(listed["result"]["resultType"], "complete");
    assert!(listed["result"]["ttlMs"].is_u64(), "{listed}");
    let call = json!({"name": "exec", "arguments": {"command": "true"}});
    assert_refused(&client.ask_modern("tools/call", call).await);
    client.leave().await;
}

#[tokio::test]
async fn undeclared_methods_are_not_found() {
    let mut client = Client::new();
    let opened = client.initialize("2025-11-25").await;
    let declared = opened["result"]["capabilities"]
        .as_object()
        .expect("object");
    let declared: Vec<&str> = declared.keys().map(String::as_str).collect();
    assert_eq!(declared, ["resources", "tools"]);
    for method in ["prompts/list", "logging/setLevel", "completion/complete"] {
        let params = match method {
            "logging/setLevel" => json!({"level": "info"}),
            "completion/complete" => json!({
                "ref": {"type": "ref/resource", "uri": "boxwood://workspace/{+path}"},
                "argument": {"name": "path", "value": ""},
            }),
            _ => json!({}),
        };
        let answer = client.ask(method, params).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    client.leave().await;
}

#[tokio::test]
async fn unknown_tools_and_bad_session_names_are_client_errors() {
    let mut client = Client::new();
    client.initialize("2025-11-25").await;
    let unknown = client
        .ask("tools/call", json!({"name": "format_disk"}))
        .await;
    assert_eq!(unknown["error"]["code"], -32602);
    for name in [json!("a\nb"), json!(7)] {
        let call = json!({
            "name": "exec",
            "arguments": {"command": "true"},
            "_meta": {"io.boxwood/session": name},
        });
        let answer = client.ask("tools/call", call).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    client.leave().await;
}
