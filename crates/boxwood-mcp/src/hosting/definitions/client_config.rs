//! Creates the configuration to paste into an MCP client.
//!
//! It contains no token. Each client has its own placeholder for one.

use serde_json::{Map, Value, json};

/// A client program whose configuration format is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpClient {
    /// Claude Desktop and Claude Code
    Claude,
    Cursor,
    /// Visual Studio Code
    Vscode,
}

/// How a client connects to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpReach {
    /// The client starts this program.
    Command { program: String, args: Vec<String> },
    /// The client connects over HTTP.
    Http {
        url: String,
        headers: Vec<(String, String)>,
        with_token: bool,
    },
}

/// The configuration for `client` with these servers, sorted by name.
pub fn client_config<'a>(
    client: McpClient,
    servers: impl IntoIterator<Item = (&'a str, &'a McpReach)>,
) -> Value {
    let mut entries = Map::new();
    let mut needs_token = false;
    for (name, reach) in servers {
        needs_token |= matches!(reach, McpReach::Http { with_token, .. } if *with_token);
        entries.insert(name.to_owned(), entry(client, reach));
    }
    if client != McpClient::Vscode {
        return json!({"mcpServers": entries});
    }
    let mut document = json!({"servers": entries});
    if needs_token {
        document["inputs"] = json!([{
            "type": "promptString",
            "id": "boxwood-token",
            "description": "A token of the Boxwood daemon",
            "password": true,
        }]);
    }
    document
}

fn entry(client: McpClient, reach: &McpReach) -> Value {
    match reach {
        McpReach::Command { program, args } => {
            let mut entry = json!({"command": program, "args": args});
            if client == McpClient::Vscode {
                entry["type"] = json!("stdio");
            }
            entry
        }
        McpReach::Http {
            url,
            headers,
            with_token,
        } => {
            let mut entry = json!({"url": url});
            if client != McpClient::Cursor {
                entry["type"] = json!("http");
            }
            for (name, value) in headers {
                entry["headers"][name] = json!(value);
            }
            if *with_token {
                let token = match client {
                    McpClient::Claude => "${BOXWOOD_TOKEN}",
                    McpClient::Cursor => "${env:BOXWOOD_TOKEN}",
                    McpClient::Vscode => "${input:boxwood-token}",
                };
                entry["headers"]["Authorization"] = json!(format!("Bearer {token}"));
            }
            entry
        }
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    const CLIENTS: [McpClient; 3] = [McpClient::Claude, McpClient::Cursor, McpClient::Vscode];

    fn printed(client: McpClient, reach: &McpReach) -> String {
        serde_json::to_string_pretty(&client_config(client, [("time", reach)])).expect("JSON")
    }

    #[test]
    fn clients_that_start_a_program() {
        let reach = McpReach::Command {
            program: "/usr/bin/boxwood".to_owned(),
            args: ["mcp", "proxy", "time"].map(str::to_owned).to_vec(),
        };
        assert_snapshot!(printed(McpClient::Claude, &reach), @r#"
        {
          "mcpServers": {
            "time": {
              "args": [
                "mcp",
                "proxy",
                "time"
              ],
              "command": "/usr/bin/boxwood"
            }
          }
        }
        "#);
        assert_eq!(
            printed(McpClient::Cursor, &reach),
            printed(McpClient::Claude, &reach)
        );
        assert_snapshot!(printed(McpClient::Vscode, &reach), @r#"
        {
          "servers": {
            "time": {
              "args": [
                "mcp",
                "proxy",
                "time"
              ],
              "command": "/usr/bin/boxwood",
              "type": "stdio"
            }
          }
        }
        "#);
    }

    #[test]
    fn clients_that_connect_over_http() {
        let reach = McpReach::Http {
            url: "http://127.0.0.1:5410/mcp/time".to_owned(),
            headers: Vec::new(),
            with_token: true,
        };
        assert_snapshot!(printed(McpClient::Claude, &reach), @r#"
        {
          "mcpServers": {
            "time": {
              "headers": {
                "Authorization": "Bearer ${BOXWOOD_TOKEN}"
              },
              "type": "http",
              "url": "http://127.0.0.1:5410/mcp/time"
            }
          }
        }
        "#);
        assert_snapshot!(printed(McpClient::Cursor, &reach), @r#"
        {
          "mcpServers": {
            "time": {
              "headers": {
                "Authorization": "Bearer ${env:BOXWOOD_TOKEN}"
              },
              "url": "http://127.0.0.1:5410/mcp/time"
            }
          }
        }
        "#);
        assert_snapshot!(printed(McpClient::Vscode, &reach), @r#"
        {
          "inputs": [
            {
              "description": "A token of the Boxwood daemon",
              "id": "boxwood-token",
              "password": true,
              "type": "promptString"
            }
          ],
          "servers": {
            "time": {
              "headers": {
                "Authorization": "Bearer ${input:boxwood-token}"
              },
              "type": "http",
              "url": "http://127.0.0.1:5410/mcp/time"
            }
          }
        }
        "#);
    }

    #[test]
    fn no_token_is_requested_if_none_is_needed() {
        let reach = McpReach::Http {
            url: "http://127.0.0.1:5410/mcp/time".to_owned(),
            headers: vec![("Boxwood-Session".to_owned(), "build".to_owned())],
            with_token: false,
        };
        for client in CLIENTS {
            let text = printed(client, &reach);
            assert!(
                !text.contains("Authorization") && !text.contains("inputs"),
                "{text}"
            );
            assert!(text.contains("\"Boxwood-Session\": \"build\""), "{text}");
        }
    }

    #[test]
    fn the_output_can_be_imported_again() {
        let reach = McpReach::Command {
            program: "/usr/bin/boxwood".to_owned(),
            args: vec!["mcp-server".to_owned()],
        };
        for client in CLIENTS {
            let request = boxwood_api::ImportMcpRequest {
                document: client_config(client, [("boxes", &reach)]),
                inputs: std::collections::BTreeMap::new(),
                replace: false,
            };
            let (servers, report) = crate::read_document(&request).expect("a document");
            assert_eq!((servers.len(), report.notices.len()), (1, 0));
            assert_eq!(servers[0].command, "/usr/bin/boxwood");
        }
    }
}
