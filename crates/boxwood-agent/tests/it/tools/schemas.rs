use boxwood_agent::check;
use boxwood_agent::schemas::{openai, tools, tools_for};
use boxwood_api::ToolInfo;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn tool(name: &str) -> ToolInfo {
    tools()
        .into_iter()
        .find(|tool| tool.name == name)
        .unwrap_or_else(|| panic!("no tool {name}"))
}

/// The schema without the words for people.
fn bare(name: &str) -> Value {
    let mut schema = tool(name).input_schema;
    for field in schema["properties"].as_object_mut().unwrap().values_mut() {
        let field = field.as_object_mut().unwrap();
        assert!(field.remove("description").is_some());
        field.remove("maxLength");
        field.remove("maximum");
        field.remove("maxProperties");
        if let Some(values) = field.get_mut("additionalProperties") {
            values.as_object_mut().unwrap().remove("maxLength");
        }
    }
    schema
}

#[test]
fn the_eight_tools_are_there() {
    let names: Vec<String> = tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(
        names,
        [
            "exec",
            "read",
            "write",
            "edit",
            "glob",
            "grep",
            "activate",
            "register_skill"
        ]
    );
}

#[test]
fn the_fields_are_the_ones_that_platforms_know_and_ours_are_optional() {
    let word = json!({"type": "string"});
    let some = json!({"type": "string", "minLength": 1});
    let count = json!({"type": "integer", "minimum": 1});
    let path = json!({"type": "string", "minLength": 1, "default": "/workspace"});
    let no = json!({"type": "boolean", "default": false});
    for (name, properties, required) in [
        (
            "exec",
            json!({"command": some, "workdir": path,
                   "timeout_sec": {"type": "integer", "minimum": 1, "default": 30},
                   "env": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
                   "description": word}),
            json!(["command"]),
        ),
        (
            "read",
            json!({"path": some, "offset": count, "limit": count}),
            json!(["path"]),
        ),
        (
            "write",
            json!({"path": some, "content": word}),
            json!(["path", "content"]),
        ),
        (
            "edit",
            json!({"path": some, "old_string": some, "new_string": word, "replace_all": no}),
            json!(["path", "old_string", "new_string"]),
        ),
        (
            "glob",
            json!({"pattern": some, "path": path}),
            json!(["pattern"]),
        ),
        (
            "grep",
            json!({"pattern": some, "path": path, "include": some, "file_type": some, "ignore_case": no}),
            json!(["pattern"]),
        ),
        (
            "activate",
            json!({"skill_name": some}),
            json!(["skill_name"]),
        ),
        (
            "register_skill",
            json!({"path": some, "name": word, "display_name": word, "description": word, "instructions": word}),
            json!(["path"]),
        ),
    ] {
        assert_eq!(
            bare(name),
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
            "{name}"
        );
    }
}

#[test]
fn every_tool_has_a_description_and_an_output_schema() {
    for tool in tools() {
        assert!(!tool.title.is_empty());
        assert!(tool.description.len() > 80, "{}", tool.name);
        // Some platforms take no longer ones.
        assert!(
            tool.description.len() <= 1_024,
            "{}: {}",
            tool.name,
            tool.description.len()
        );
        assert_eq!(tool.output_schema["type"], "object", "{}", tool.name);
        assert!(
            tool.output_schema["properties"]["ok"].is_object(),
            "{}",
            tool.name
        );
        assert!(!(tool.annotations.read_only && tool.annotations.destructive));
    }
}

#[test]
fn annotations_say_what_a_client_should_ask_about() {
    for (name, read_only, destructive, open_world) in [
        ("exec", false, true, true),
        ("read", true, false, false),
        ("write", false, true, false),
        ("edit", false, true, false),
        ("glob", true, false, false),
        ("grep", true, false, false),
        ("activate", false, false, false),
        ("register_skill", false, false, false),
    ] {
        let found = tool(name).annotations;
        assert_eq!(
            (found.read_only, found.destructive, found.open_world),
            (read_only, destructive, open_world),
            "{name}"
        );
    }
}

#[test]
fn results_have_the_fields_that_platforms_know() {
    let exec = tool("exec").output_schema;
    for field in [
        "session_id",
        "backend",
        "status",
        "ok",
        "exit_code",
        "stdout",
        "stderr",
        "stdout_truncated",
        "stderr_truncated",
        "duration_ms",
    ] {
        assert!(exec["properties"][field].is_object(), "{field}");
    }
    assert_eq!(exec["required"], json!(["ok"]));
    assert_eq!(
        exec["properties"]["exit_code"]["type"],
        json!(["integer", "null"])
    );
}

#[test]
fn openai_gets_the_same_tools_as_functions() {
    for tool in tools() {
        assert_eq!(
            openai(&tool),
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.input_schema,
            }})
        );
    }
}

#[test]
fn the_schema_tells_the_timeout_that_is_used() {
    let timeout =
        |known| tools_for(known).remove(0).input_schema["properties"]["timeout_sec"].take();
    assert_eq!(timeout(Some(60))["default"], 60);
    let unknown = timeout(None);
    assert!(unknown.get("default").is_none(), "{unknown}");
}

/// What the schemas say, read without other knowledge. Texts here are ASCII, so that
/// characters are bytes.
fn allows(schema: &Value, value: &Value) -> bool {
    let fits = |key: &str, measure: u64, ordering: fn(u64, u64) -> bool| {
        schema[key]
            .as_u64()
            .is_none_or(|bound| ordering(measure, bound))
    };
    match schema["type"].as_str().unwrap() {
        "string" => value.as_str().is_some_and(|text| {
            let length = text.len() as u64;
            fits("minLength", length, |a, b| a >= b) && fits("maxLength", length, |a, b| a <= b)
        }),
        "boolean" => value.is_boolean(),
        "integer" => {
            value
                .as_f64()
                .is_some_and(|float| float.fract() == 0.0 && float >= 1.0)
                && value
                    .as_u64()
                    .is_none_or(|count| fits("maximum", count, |a, b| a <= b))
        }
        "object" => value.as_object().is_some_and(|object| {
            let properties = schema["properties"].as_object();
            let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
            required
                .iter()
                .all(|name| object.contains_key(name.as_str().unwrap()))
                && object.iter().all(|(name, value)| {
                    match properties.and_then(|known| known.get(name)) {
                        Some(field) => allows(field, value),
                        None if schema["additionalProperties"] == json!(false) => false,
                        None => allows(&schema["additionalProperties"], value),
                    }
                })
        }),
        other => panic!("{other} is in no schema of ours"),
    }
}

fn any_field() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => proptest::sample::select(vec![
            "command", "workdir", "timeout_sec", "env", "description", "path", "offset", "limit", "content",
            "old_string", "new_string", "replace_all", "pattern", "include", "file_type", "ignore_case",
            "skill_name", "name", "display_name", "instructions",
        ]).prop_map(str::to_owned),
        1 => "[a-z_]{0,8}",
    ]
}

fn any_argument() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => "[ -~]{0,12}".prop_map(Value::from),
        2 => any::<bool>().prop_map(Value::from),
        2 => (-3_i64..100).prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => prop_oneof![Just(1.0), Just(2.5), Just(0.0), Just(30.0)].prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!([])),
        1 => proptest::collection::btree_map("[A-Z_]{1,6}", prop_oneof![3 => "[ -~]{0,8}".prop_map(Value::from), 1 => Just(json!(1))], 0..3)
            .prop_map(|variables| Value::Object(variables.into_iter().collect())),
        1 => Just(Value::from("x".repeat(5_000))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn arguments_are_taken_exactly_when_the_schema_allows_them(
        which in 0_usize..8,
        own in any::<bool>(),
        fields in proptest::collection::vec((any_field(), any_argument()), 0..6),
        seed in any::<u64>(),
    ) {
        let tool = tools().remove(which);
        let mut arguments: Map<String, Value> = fields.into_iter().collect();
        if own {
            // Else nearly everything is refused for an unknown or a missing field.
            let known = tool.input_schema["properties"].as_object().unwrap().clone();
            arguments.retain(|name, _| known.contains_key(name));
            for (index, name) in tool.input_schema["required"].as_array().unwrap().iter().enumerate() {
                if !(seed + index as u64).is_multiple_of(7) {
                    arguments.insert(name.as_str().unwrap().to_owned(), json!("/workspace/x"));
                }
            }
        }
        let allowed = allows(&tool.input_schema, &Value::Object(arguments.clone()));
        let checked = check(&tool.name, &arguments);
        prop_assert_eq!(checked.is_ok(), allowed, "{}: {:?} gave {:?}", tool.name, arguments, checked);
    }
}
