//! Documents of various clients.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn request(document: Value, inputs: &[(&str, &str)]) -> ImportMcpRequest {
    ImportMcpRequest {
        document,
        inputs: inputs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        replace: false,
    }
}

fn import(document: Value, inputs: &[(&str, &str)]) -> (Vec<McpServerSpec>, ImportedMcp) {
    read_document(&request(document, inputs)).expect("a document")
}

#[track_caller]
fn only(document: Value, inputs: &[(&str, &str)]) -> McpServerSpec {
    let (mut servers, report) = import(document, inputs);
    assert_eq!(report.skipped, []);
    assert_eq!(servers.len(), 1);
    servers.remove(0)
}

#[test]
fn oversized_values_skip_only_their_server() {
    let long = "x".repeat(1 << 20);
    let args = vec!["${A}".repeat(1000); 1000];
    let document = json!({"mcpServers": {
        "endless": {"command": "x", "args": args},
        "fine": {"command": "x", "env": {"B": "${B}"}},
    }});
    let (servers, report) = import(document, &[("A", &long), ("B", "b")]);
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["fine"]);
    assert_eq!(report.skipped.len(), 1);
    let why = &report.skipped[0].why;
    assert!(why.contains("too long"), "{why}");
}

#[track_caller]
fn skipped(entry: &Value, why: &str) {
    let (servers, report) = import(json!({"mcpServers": {"x": entry}}), &[]);
    assert_eq!(servers, []);
    let [left_out] = report.skipped.as_slice() else {
        panic!("one is skipped, not {:?}", report.skipped);
    };
    assert!(
        left_out.why.contains(why),
        "`{}` should say `{why}`",
        left_out.why
    );
}

fn env(spec: &McpServerSpec) -> Vec<(&str, &str)> {
    spec.env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

#[test]
fn claude_desktop() {
    let spec = only(
        json!({"mcpServers": {"filesystem": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/a/Desktop"],
            "env": {"LOG_LEVEL": "debug"},
        }}}),
        &[],
    );
    assert_eq!(spec.name.as_str(), "filesystem");
    assert_eq!(spec.command, "npx");
    assert_eq!(spec.args[2], "/home/a/Desktop");
    assert_eq!(env(&spec), [("LOG_LEVEL", "debug")]);
    assert!(spec.enabled);
    assert_eq!(spec.settings, boxwood_api::McpBoxSettings::default());
}

#[test]
fn claude_code_with_variables_and_projects() {
    let document = json!({
        "mcpServers": {"db": {
            "type": "stdio",
            "command": "${BIN:-uvx}",
            "args": ["mcp-server-sqlite", "--db-path", "${DB}"],
            "env": {"KEY": "${API_KEY}"},
        }},
        "projects": {"/home/a/web": {"mcpServers": {"local": {"command": "node"}}}},
        "numStartups": 9,
    });
    let (servers, report) = import(document, &[("DB", "/tmp/x.db"), ("API_KEY", "k")]);
    assert_eq!(servers[0].command, "uvx");
    assert_eq!(servers[0].args[2], "${input:env:DB}");
    assert_eq!(
        env(&servers[0]),
        [("KEY", "k"), ("input:env:DB", "/tmp/x.db")]
    );
    assert_eq!(report.skipped[0].name, "local");
    assert!(report.skipped[0].why.contains("/home/a/web"));
}

#[test]
fn cursor() {
    let spec = only(
        json!({"mcpServers": {"git": {
            "command": "uvx",
            "args": ["mcp-server-git", "--repository", "${workspaceFolder}"],
            "env": {"TOKEN": "${env:TOKEN}", "HOME_OF": "${userHome}/x"},
        }}}),
        &[
            ("workspaceFolder", "/src/app"),
            ("userHome", "/home/a"),
            ("env:TOKEN", "t"),
        ],
    );
    assert_eq!(spec.args[2], "/src/app");
    assert_eq!(env(&spec), [("HOME_OF", "/home/a/x"), ("TOKEN", "t")]);
}

#[test]
fn vscode_with_inputs() {
    let document = json!({
        "inputs": [
            {"type": "promptString", "id": "key", "description": "API key", "password": true},
            {"type": "pickString", "id": "region", "options": ["eu", "us"], "default": "eu"},
        ],
        "servers": {"search": {
            "type": "stdio", "command": "npx", "args": ["-y", "search", "--region=${input:region}"],
            "env": {"KEY": "${input:key}", "GONE": null, "PORT": 80},
        }},
    });
    let (servers, report) = import(document.clone(), &[("input:key", "hunter2")]);
    assert_eq!(env(&servers[0]), [("KEY", "hunter2"), ("PORT", "80")]);
    assert_eq!(servers[0].args[2], "--region=eu");
    assert_eq!(
        report.notices,
        ["`search`: the input `region` uses the document's default"]
    );
    let (servers, report) = import(json!({"mcp": document}), &[]);
    assert_eq!(servers, []);
    assert!(
        report.skipped[0].why.contains("the input `key` (API key)"),
        "{report:?}"
    );
}

#[test]
fn windsurf_gemini_and_others() {
    let spec = only(
        json!({"mcpServers": {"a": {
            "command": "uvx", "args": ["x"], "disabled": true, "disabledTools": ["rm"],
            "alwaysAllow": ["ls"],
        }}}),
        &[],
    );
    assert!(!spec.enabled);
    assert_eq!(spec.tools.deny, ["rm"]);
    let spec = only(
        json!({"mcpServers": {"a": {"command": "uvx", "includeTools": ["a"], "excludeTools": ["b"]}}}),
        &[],
    );
    assert_eq!(
        (spec.tools.allow, spec.tools.deny),
        (vec!["a".into()], vec!["b".into()])
    );
    let spec = only(
        json!({"a": {"command": ["npx", "-y", "x"], "environment": {"A": true}}}),
        &[],
    );
    assert_eq!((spec.command.as_str(), spec.args.len()), ("npx", 2));
    assert_eq!(env(&spec), [("A", "true")]);
    let spec = only(
        json!({"context_servers": {"a": {"command": "x", "tools": ["*"]}}}),
        &[],
    );
    assert_eq!(spec.tools.allow, ["*"]);
}

#[test]
fn an_empty_tool_list_allows_no_tools() {
    for list in ["tools", "includeTools"] {
        let document = json!({"mcpServers": {"a": {"command": "uvx", list: []}}});
        let (servers, report) = import(document, &[]);
        let filter = crate::hosting::ToolFilter::from(&servers[0].tools);
        assert!(!filter.admits("anything"), "{list}");
        let notices = ["`a`: its list of tools is empty, so all tools are disabled"];
        assert_eq!(report.notices, notices, "{list}");
    }
    let mixed = json!({"a": {"command": "x", "tools": [], "includeTools": ["ls"]}});
    assert_eq!(only(mixed, &[]).tools.allow, ["ls"]);
    // An empty filter of Boxwood allows all tools.
    let filter = json!({"a": {"command": "x", "tools": {"allow": []}}});
    assert_eq!(only(filter, &[]).tools.deny, [""; 0]);
}

#[test]
fn boxwood_and_langbot_settings_are_read() {
    let document = json!({"mcpServers": {"a": {
        "command": "uvx", "args": ["x"],
        "box": {
            "image": null, "network": "off", "memory_mb": 512, "host_path_mode": "rw",
            "startup_timeout_sec": 30, "colour": "red",
        },
        "idle_stop_sec": 60, "with": ["mcp<2"], "tools": {"deny": ["x*"]},
    }}});
    let (servers, report) = import(document, &[]);
    let spec = &servers[0];
    assert_eq!(spec.settings.memory_mb, Some(512));
    assert_eq!(spec.settings.network, boxwood_api::Network::Off);
    assert_eq!(spec.settings.host_path_mode, boxwood_api::MountMode::Rw);
    assert_eq!(spec.settings.startup_timeout_sec, 30);
    assert_eq!((spec.idle_stop_sec, spec.with.len()), (Some(60), 1));
    assert_eq!(
        report.notices,
        ["`a`: `box.colour` is not supported and was ignored"]
    );
}

#[test]
fn remote_servers_are_skipped() {
    for entry in [
        json!({"url": "https://x/mcp"}),
        json!({"type": "http", "url": "https://x/mcp", "headers": {"A": "${env:T}"}}),
        json!({"serverUrl": "https://x/sse"}),
        json!({"type": "sse"}),
    ] {
        skipped(&entry, "it is a remote server");
    }
}

#[test]
fn invalid_servers_are_skipped_with_a_reason() {
    skipped(&json!(7), "not an object");
    skipped(&json!({}), "no `command`");
    skipped(&json!({"command": ""}), "no `command`");
    skipped(&json!({"command": []}), "no `command`");
    skipped(&json!({"command": "a", "args": "b"}), "not a list");
    skipped(&json!({"command": "a", "args": [{}]}), "not a list");
    skipped(
        &json!({"command": "a", "env": {"A": {}}}),
        "env `A` is not a string",
    );
    skipped(
        &json!({"command": "a", "type": "carrier-pigeon"}),
        "its type `carrier-pigeon` is not supported",
    );
    skipped(&json!({"command": "a", "disabled": "yes"}), "`disabled`");
    skipped(
        &json!({"command": "a", "box": {"memory_mb": "much"}}),
        "`box`",
    );
    skipped(
        &json!({"command": "a", "envFile": ".env"}),
        "`envFile` is not supported",
    );
    skipped(
        &json!({"command": "${command:pick}"}),
        "is known only to the client",
    );
    skipped(
        &json!({"command": "a", "env": {"K": "${TOKEN}"}}),
        "no value was given for `TOKEN`",
    );
    skipped(&json!({"command": "a", "with": ["-x"]}), "`with`");
}

#[test]
fn a_command_line_in_one_string_is_split() {
    let document = json!({"mcpServers": {
        "line": {"command": "npx -y @scope/x"},
        "path": {"command": "/opt/my tools/run"},
    }});
    let (servers, report) = import(document, &[]);
    let lines: Vec<String> = servers
        .iter()
        .map(|spec| format!("{} {}", spec.command, spec.args.join(" ")))
        .collect();
    assert_eq!(lines, ["npx -y @scope/x", "/opt/my tools/run "]);
    assert_eq!(report.notices.len(), 1);
}

#[test]
fn invalid_names_are_changed_with_a_notice() {
    let document = json!({"mcpServers": {
        "My Server": {"command": "a"}, "My/Server": {"command": "b"}, "My-Server": {"command": "c"},
    }});
    let (servers, report) = import(document, &[]);
    let mut names: Vec<_> = servers
        .iter()
        .map(|spec| (spec.name.as_str(), spec.command.as_str()))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            ("My-Server", "c"),
            ("My-Server-2", "a"),
            ("My-Server-3", "b")
        ]
    );
    assert_eq!(report.notices.len(), 2, "{:?}", report.notices);
}

#[test]
fn secrets_are_kept_out_of_arguments() {
    let args = json!([
        "x",
        "--key=${input:key}",
        "${input:unlisted}",
        "${input:region}"
    ]);
    let document = json!({
        "inputs": [{"id": "key", "password": true}, {"id": "region"}],
        "servers": {"a": {"command": "uvx", "args": args, "env": {"KEY": "${input:key}"}}},
    });
    let given = [
        ("key", "hunter2"),
        ("unlisted", "hunter3"),
        ("region", "eu"),
    ];
    let spec = only(document.clone(), &given);
    assert_eq!(
        spec.args,
        ["x", "--key=${input:key}", "${input:unlisted}", "eu"]
    );
    assert_eq!(
        env(&spec),
        [
            ("KEY", "hunter2"),
            ("input:key", "hunter2"),
            ("input:unlisted", "hunter3")
        ]
    );
    let (_, report) = import(document, &given[1..]);
    assert!(report.skipped[0].why.contains("`key`"), "{report:?}");
}

#[test]
fn the_environment_is_kept_out_of_arguments() {
    let args = json!([
        "--key=${TOKEN}",
        "${env:TOKEN}:${PORT:-80}",
        "${HOST:-localhost}",
        "${workspaceFolder}",
    ]);
    let document = json!({"mcpServers": {"a": {"command": "${BIN}", "args": args}}});
    let given = [
        ("env:TOKEN", "hunter2"),
        ("HOST", "db"),
        ("BIN", "/opt/x"),
        ("workspaceFolder", "/src"),
    ];
    let spec = only(document, &given);
    assert_eq!(spec.command, "/opt/x");
    assert_eq!(
        spec.args,
        [
            "--key=${input:env:TOKEN}",
            "${input:env:TOKEN}:80",
            "${input:env:HOST}",
            "/src"
        ]
    );
    assert_eq!(
        env(&spec),
        [("input:env:HOST", "db"), ("input:env:TOKEN", "hunter2")]
    );
    let meant = crate::hosting::definitions::secret_args::filled(&spec).args;
    assert_eq!(meant, ["--key=hunter2", "hunter2:80", "db", "/src"]);
}

#[test]
fn inputs_and_variables_of_the_same_name_stay_distinct() {
    let document = json!({"servers": {"a": {
        "command": "x", "args": ["${env:KEY}", "${input:env:KEY}", "${KEY}"],
    }}});
    let given = [("env:KEY", "variable"), ("input:env:KEY", "input")];
    let spec = only(document, &given);
    let meant = crate::hosting::definitions::secret_args::filled(&spec).args;
    assert_eq!(meant, ["variable", "input", "variable"]);
}

#[test]
fn a_document_without_servers_explains_the_format() {
    for document in [
        json!([]),
        json!("x"),
        json!({}),
        json!({"a": 1}),
        json!({"mcpServers": []}),
    ] {
        let error = read_document(&request(document, &[])).expect_err("no servers");
        assert!(error.to_string().contains("mcpServers"), "{error}");
    }
    let error = read_document(&request(json!({"command": "npx"}), &[])).expect_err("no name");
    assert!(error.to_string().contains("has no name"), "{error}");
    let many: Map<String, Value> = (0..501)
        .map(|n| (n.to_string(), json!({"command": "a"})))
        .collect();
    let error = read_document(&request(json!({"mcpServers": many}), &[])).expect_err("too many");
    assert!(error.to_string().contains("the limit is 500"), "{error}");
    let (servers, _) = import(json!({"mcpServers": {}}), &[]);
    assert_eq!(servers, []);
}

#[test]
fn only_mentioned_variables_are_requested() {
    let document = json!({
        "inputs": [{"id": "unused"}, {"id": "key", "password": true, "description": "Key"}],
        "servers": {
            "a": {
                "command": "${userHome}/x", "args": ["${env:A}", "${B:-1}", "${A:-2}"],
                "env": {"K": "${input:key}", "L": "${input:other}"}, "envFile": "${workspaceFolder}/.env",
            },
            "b": {"url": "https://x", "headers": {"A": "${env:NOT_SENT}"}},
        },
    });
    let found = mentions(&document).expect("a document");
    let environment: Vec<_> = found.environment.into_iter().collect();
    assert_eq!(
        environment,
        [("A".to_owned(), false), ("B".to_owned(), true)]
    );
    let inputs: Vec<_> = found
        .inputs
        .iter()
        .map(|it| (it.id.as_str(), it.is_password))
        .collect();
    assert_eq!(inputs, [("key", true), ("other", true)]);
    let places: Vec<_> = found.places.iter().map(String::as_str).collect();
    assert_eq!(places, ["userHome", "workspaceFolder"]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a${}:/ -]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let keys = prop_oneof![
            Just("command".to_owned()),
            Just("args".to_owned()),
            Just("env".to_owned()),
            Just("box".to_owned()),
            Just("tools".to_owned()),
            Just("type".to_owned()),
            "[a b]{0,4}",
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(keys, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_server_is_added_or_skipped(
        entries in proptest::collection::btree_map("[ab /._-]{0,4}", any_json(), 0..8)
    ) {
        let many = entries.len();
        let document: Map<String, Value> = entries.into_iter().collect();
        let (servers, report) = import(json!({"mcpServers": document}), &[]);
        prop_assert_eq!(servers.len() + report.skipped.len(), many);
        let names: BTreeSet<_> = servers.iter().map(|spec| spec.name.clone()).collect();
        prop_assert_eq!(names.len(), servers.len());
        prop_assert!(servers.iter().all(|spec| check(spec).is_ok()));
    }
}
