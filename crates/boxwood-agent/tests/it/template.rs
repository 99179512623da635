use boxwood_agent::Template;
use boxwood_agent::template::{DEFAULT_TEMPLATE, Scope, scope};
use boxwood_api::{AgentPipeline, AgentQuery, SessionId};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn query(value: Value) -> AgentQuery {
    serde_json::from_value(value).unwrap()
}

fn person() -> AgentQuery {
    query(
        json!({"query_id": 1, "launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user"}),
    )
}

fn with_pipeline(mut query: AgentQuery, template: &str) -> AgentQuery {
    query.pipeline = AgentPipeline {
        box_session_id_template: Some(template.to_owned()),
    };
    query
}

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

fn id(forced: Option<&str>, query: &AgentQuery) -> String {
    let forced = forced.map(template);
    let Scope {
        session_id,
        problem,
    } = scope(forced.as_ref(), query).unwrap();
    assert_eq!(problem, None);
    session_id.to_string()
}

fn refused(text: &str) -> String {
    Template::parse(text).unwrap_err().to_string()
}

#[test]
fn a_conversation_has_a_box_by_its_launcher() {
    assert_eq!(id(None, &person()), "person_test_user");
    let group = query(
        json!({"query_id": 2, "launcher_type": "group", "launcher_id": "room-1", "sender_id": "u"}),
    );
    assert_eq!(id(None, &group), "group_room-1");
}

#[test]
fn without_a_launcher_the_query_itself_is_the_scope() {
    assert_eq!(id(None, &query(json!({"query_id": 7}))), "query_7");
    assert_eq!(id(None, &query(json!({"query_id": "q-7"}))), "query_q-7");
    assert_eq!(id(None, &AgentQuery::default()), "query_unknown");
}

#[test]
fn the_pipelines_template_is_used() {
    for (text, expected) in [
        ("{global}", "global"),
        ("{launcher_type}_{launcher_id}", "person_test_user"),
        (
            "{launcher_type}_{launcher_id}_{sender_id}",
            "person_test_user_test_user",
        ),
        (
            "{launcher_type}_{launcher_id}_{conversation_id}",
            "person_test_user_unknown",
        ),
        ("{query_id}", "1"),
        ("fixed", "fixed"),
        ("{{{query_id}}}", "{1}"),
        ("  {query_id}\n", "1"),
    ] {
        assert_eq!(id(None, &with_pipeline(person(), text)), expected, "{text}");
    }
    let mut talk = with_pipeline(person(), "{launcher_id}/{conversation_id}");
    talk.variables
        .insert("conversation_id".into(), json!("c-9"));
    assert_eq!(id(None, &talk), "test_user/c-9");
}

#[test]
fn the_forced_template_wins_over_the_pipeline() {
    let one = with_pipeline(person(), "{query_id}");
    let other = with_pipeline(query(json!({"query_id": 2})), "{launcher_id}");
    assert_eq!(id(Some("{global}"), &one), "global");
    assert_eq!(id(Some("{global}"), &other), "global");
    // An invalid template of the pipeline is ignored too.
    assert_eq!(
        id(Some("{launcher_id}"), &with_pipeline(person(), "{")),
        "test_user"
    );
}

#[test]
fn a_blank_pipeline_template_is_none() {
    assert_eq!(
        id(None, &with_pipeline(person(), " \t ")),
        "person_test_user"
    );
    assert_eq!(DEFAULT_TEMPLATE, "{launcher_type}_{launcher_id}");
}

#[test]
fn variables_do_not_change_a_forced_scope() {
    let mut sly = person();
    for name in [
        "global",
        "launcher_type",
        "launcher_id",
        "sender_id",
        "query_id",
    ] {
        sly.variables.insert(name.into(), json!("victim"));
    }
    assert_eq!(id(Some("{global}"), &sly), "global");
    assert_eq!(
        id(
            Some("{launcher_type}_{launcher_id}_{sender_id}_{query_id}"),
            &sly
        ),
        "person_test_user_test_user_1"
    );
    // Without a forced template, a pipeline may use the variables.
    assert_eq!(id(None, &with_pipeline(sly, "{launcher_id}")), "victim");
}

#[test]
fn names_that_are_not_known_are_unknown() {
    assert_eq!(
        id(None, &with_pipeline(person(), "{no_such_name}-{größe}")),
        "unknown-unknown"
    );
    let mut nulls = with_pipeline(person(), "{a}{sender_id}");
    nulls.variables.insert("a".into(), Value::Null);
    nulls.variables.insert("sender_id".into(), Value::Null);
    assert_eq!(id(None, &nulls), "unknowntest_user");
}

#[test]
fn the_sender_falls_back_to_the_launcher_and_the_query() {
    let sender = |value| id(Some("{sender_id}"), &query(value));
    assert_eq!(
        sender(json!({"sender_id": 5, "launcher_id": 6, "query_id": 7})),
        "5"
    );
    assert_eq!(sender(json!({"launcher_id": 6, "query_id": 7})), "6");
    assert_eq!(sender(json!({"launcher_id": "", "query_id": 7})), "7");
    assert_eq!(sender(json!({})), "unknown");
}

#[test]
fn values_of_every_kind_have_a_text() {
    let mut all = with_pipeline(person(), "{n}|{f}|{t}|{l}");
    all.variables =
        serde_json::from_value(json!({"n": -3, "f": 1.5, "t": true, "l": ["a", 1]})).unwrap();
    assert_eq!(id(None, &all), "-3|1.5|True|[\"a\",1]");
}

#[test]
fn invalid_templates_are_refused_with_the_position_and_the_fix() {
    for (text, part) in [
        ("", "must not be empty"),
        ("  ", "must not be empty"),
        ("a{", "`{` at character 1 has no closing brace"),
        ("{launcher_id", "`{` at character 0 has no closing brace"),
        ("{a{b}}", "`{` at character 0 has no closing brace"),
        ("a}b", "`}` at character 1 has no opening brace; write `}}`"),
        ("{a}}", "`}` at character 3 has no opening brace"),
        ("{}", "`{}` at character 0 has no name"),
        ("{0}", "`{0}` at character 0 is positional"),
        ("{a!r}", "has a conversion"),
        ("{a:>9}", "has a conversion"),
        ("{a.b}", "has a conversion"),
        ("{a[0]}", "has a conversion"),
        ("{ a }", "`{ a }` at character 0 is not a name"),
        ("{-a}", "is not a name"),
    ] {
        let message = refused(text);
        assert!(message.contains(part), "{text}: {message}");
    }
    let long = refused(&"a".repeat(5_000));
    assert!(long.ends_with("at most 4096 bytes, not 5000"), "{long}");
}

#[test]
fn a_broken_pipeline_template_falls_back_to_a_narrow_scope_and_says_so() {
    let broken = with_pipeline(
        query(
            json!({"launcher_type": "group", "launcher_id": "g", "sender_id": "s",
                     "variables": {"conversation_id": "c"}}),
        ),
        "{launcher_type}_{launcher_id",
    );
    let found = scope(None, &broken).unwrap();
    assert_eq!(found.session_id.as_str(), "group_g_s_c");
    let problem = found.problem.expect("a problem").to_string();
    assert!(
        problem.contains("`{` at character 16 has no closing brace"),
        "{problem}"
    );
}

#[test]
fn characters_that_are_illegal_in_an_id_are_replaced_and_a_digest_is_added() {
    let of = |launcher: &str| {
        let query = query(json!({"launcher_type": "person", "launcher_id": launcher}));
        id(None, &query)
    };
    let newline = of("a\nb");
    assert!(newline.starts_with("person_a_b-"), "{newline}");
    // Else three people would share a box.
    assert_ne!(newline, of("a\tb"));
    assert_ne!(newline, of("a_b"));
    assert_ne!(of("a"), of("a "));
    let long = of(&"x".repeat(300));
    assert_eq!(long.len(), 256);
    assert_ne!(long, of(&"x".repeat(301)));
    assert_eq!(long, of(&"x".repeat(300)));
    // Cut at a character, never in one.
    assert!(of(&"é".repeat(300)).len() <= 256);
    assert!(
        id(
            Some("{launcher_id}"),
            &query(json!({"launcher_id": " \u{0}"}))
        )
        .starts_with('_')
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::from),
        "[a-z0-9_-]{0,12}".prop_map(Value::from),
        "\\s{0,4}".prop_map(Value::from),
        "[\\x00-\\x20é]{0,400}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!({"a": [1, null]})),
    ]
}

prop_compose! {
    fn any_query()(
        query_id in proptest::option::of(any_value()),
        launcher_type in proptest::option::of(any::<String>()),
        launcher_id in proptest::option::of(any_value()),
        sender_id in proptest::option::of(any_value()),
        variables in proptest::collection::btree_map("[a-z_]{1,8}|global|launcher_id|sender_id|query_id", any_value(), 0..5),
        pipeline in proptest::option::of("[ab{}!:. ]{0,12}|\\{[a-z_]{1,8}\\}|.{0,20}"),
    ) -> AgentQuery {
        AgentQuery {
            query_id,
            launcher_type,
            launcher_id,
            sender_id,
            variables: variables.into_iter().collect::<Map<_, _>>(),
            pipeline: AgentPipeline { box_session_id_template: pipeline },
        }
    }
}

proptest! {
    #[test]
    fn every_template_gives_every_query_a_legal_id(text in "([a-z_ é]|\\{[a-z_]{1,8}\\}|\\{\\{|\\}\\}|\\{launcher_id\\}){1,9}", query in any_query()) {
        let Ok(template) = Template::parse(&text) else {
            prop_assert!(text.trim().is_empty());
            return Ok(());
        };
        let id = template.render(&query).unwrap();
        prop_assert_eq!(SessionId::new(id.as_str()).unwrap(), id);
    }

    #[test]
    fn every_query_has_a_scope_whatever_its_pipeline_says(query in any_query()) {
        let found = scope(None, &query).unwrap();
        prop_assert_eq!(SessionId::new(found.session_id.as_str()).unwrap(), found.session_id);
        let chosen = query.pipeline.box_session_id_template.as_deref().unwrap_or("").trim();
        prop_assert_eq!(found.problem.is_some(), !chosen.is_empty() && Template::parse(chosen).is_err());
    }

    #[test]
    fn nothing_in_a_query_escapes_a_forced_global_scope(query in any_query()) {
        let found = scope(Some(&template("{global}")), &query).unwrap();
        prop_assert_eq!(found.session_id.as_str(), "global");
    }

    #[test]
    fn the_pipeline_and_the_variables_never_change_a_forced_scope(query in any_query(), other in any_query()) {
        let forced = template("{launcher_type}_{launcher_id}");
        let mut query = query;
        query.launcher_type = Some("group".to_owned());
        query.launcher_id = Some(json!("g"));
        query.variables = other.variables;
        query.pipeline = other.pipeline;
        let found = scope(Some(&forced), &query).unwrap();
        prop_assert_eq!(found.session_id.as_str(), "group_g");
    }

    #[test]
    fn two_launchers_never_share_the_usual_box(one in any::<String>(), other in any::<String>()) {
        prop_assume!(one != other && !one.is_empty() && !other.is_empty());
        let of = |launcher: &str| {
            let query = query(json!({"launcher_type": "person", "launcher_id": launcher}));
            scope(None, &query).unwrap().session_id
        };
        prop_assert_ne!(of(&one), of(&other));
    }

    #[test]
    fn unknown_names_are_unknown(name in "[a-z_][a-z0-9_-]{0,20}") {
        prop_assume!(!["global", "query_id", "launcher_type", "launcher_id", "sender_id"].contains(&name.as_str()));
        let id = template(&format!("x{{{name}}}")).render(&AgentQuery::default()).unwrap();
        prop_assert_eq!(id.as_str(), "xunknown");
    }

    #[test]
    fn parsing_never_panics_and_braces_balance(text in "[{}a!:.\\[ 0é]{0,16}") {
        if Template::parse(&text).is_ok() {
            let count = |wanted| text.chars().filter(|found| *found == wanted).count();
            prop_assert_eq!(count('{') % 2, (count('}')) % 2);
        }
    }
}

#[test]
fn a_template_is_shown_as_it_would_be_written() {
    for text in ["{launcher_type}_{launcher_id}", "{{x}}-{sender_id}", "all"] {
        let template = Template::parse(text).expect("a template");
        assert_eq!(template.to_string(), text);
    }
}
