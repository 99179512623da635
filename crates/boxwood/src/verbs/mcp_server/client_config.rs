//! What to paste into an MCP client's configuration. A token is never printed: each client has its own
//! way to ask for one or to read it from the environment.

use boxwood_api::SessionId;
use serde_json::{Map, Value, json};

use super::ClientKind;

const NAME: &str = "boxwood";

/// How the client reaches the tools.
pub(super) enum Way {
    /// It starts this program.
    Command {
        program: String,
        url: Option<String>,
    },
    /// It asks the daemon itself.
    Http { address: String, with_token: bool },
}

pub(super) fn write(client: ClientKind, way: &Way, session: Option<&SessionId>) -> Value {
    let mut entry = Map::new();
    let mut inputs = None;
    match way {
        Way::Command { program, url } => {
            if client == ClientKind::Vscode {
                entry.insert("type".to_owned(), json!("stdio"));
            }
            let mut arguments = vec!["mcp-server".to_owned()];
            if let Some(url) = url {
                arguments.extend(["--url".to_owned(), url.clone()]);
            }
            if let Some(session) = session {
                arguments.extend(["--session".to_owned(), session.to_string()]);
            }
            entry.insert("command".to_owned(), json!(program));
            entry.insert("args".to_owned(), json!(arguments));
        }
        Way::Http {
            address,
            with_token,
        } => {
            if client != ClientKind::Cursor {
                entry.insert("type".to_owned(), json!("http"));
            }
            entry.insert("url".to_owned(), json!(format!("{address}/mcp")));
            let mut headers = Map::new();
            if let Some(session) = session {
                headers.insert("Boxwood-Session".to_owned(), json!(session.as_str()));
            }
            if *with_token {
                let token = match client {
                    ClientKind::Claude => "${BOXWOOD_TOKEN}",
                    ClientKind::Cursor => "${env:BOXWOOD_TOKEN}",
                    ClientKind::Vscode => "${input:boxwood-token}",
                };
                headers.insert("Authorization".to_owned(), json!(format!("Bearer {token}")));
                inputs = (client == ClientKind::Vscode).then(|| {
                    json!([{
                        "type": "promptString",
                        "id": "boxwood-token",
                        "description": "A token of the Boxwood daemon",
                        "password": true,
                    }])
                });
            }
            if !headers.is_empty() {
                entry.insert("headers".to_owned(), Value::Object(headers));
            }
        }
    }
    let servers = match client {
        ClientKind::Claude | ClientKind::Cursor => "mcpServers",
        ClientKind::Vscode => "servers",
    };
    let mut whole = Map::new();
    whole.insert(servers.to_owned(), json!({ NAME: entry }));
    if let Some(inputs) = inputs {
        whole.insert("inputs".to_owned(), inputs);
    }
    Value::Object(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Way {
        Way::Command {
            program: "/usr/bin/boxwood".to_owned(),
            url: None,
        }
    }

    fn http(with_token: bool) -> Way {
        Way::Http {
            address: "http://127.0.0.1:5410".to_owned(),
            with_token,
        }
    }

    #[test]
    fn a_client_that_starts_the_program() {
        let session = SessionId::new("build").expect("id");
        for client in [ClientKind::Claude, ClientKind::Cursor] {
            assert_eq!(
                write(client, &command(), Some(&session)),
                json!({"mcpServers": {"boxwood": {
                    "command": "/usr/bin/boxwood",
                    "args": ["mcp-server", "--session", "build"],
                }}})
            );
        }
        assert_eq!(
            write(ClientKind::Vscode, &command(), None),
            json!({"servers": {"boxwood": {
                "type": "stdio", "command": "/usr/bin/boxwood", "args": ["mcp-server"],
            }}})
        );
    }

    #[test]
    fn a_client_that_asks_the_daemon() {
        assert_eq!(
            write(ClientKind::Cursor, &http(false), None),
            json!({"mcpServers": {"boxwood": {"url": "http://127.0.0.1:5410/mcp"}}})
        );
        let session = SessionId::new("build").expect("id");
        assert_eq!(
            write(ClientKind::Claude, &http(true), Some(&session)),
            json!({"mcpServers": {"boxwood": {
                "type": "http",
                "url": "http://127.0.0.1:5410/mcp",
                "headers": {
                    "Boxwood-Session": "build",
                    "Authorization": "Bearer ${BOXWOOD_TOKEN}",
                },
            }}})
        );
    }

    #[test]
    fn vscode_asks_its_user_for_the_token() {
        let written = write(ClientKind::Vscode, &http(true), None);
        assert_eq!(written["inputs"][0]["id"], "boxwood-token");
        assert_eq!(
            written["servers"]["boxwood"]["headers"]["Authorization"],
            "Bearer ${input:boxwood-token}"
        );
    }
}
