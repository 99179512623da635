//! Every answer against those of the clients' own models, as `tests/golden/pydantic.py` wrote them
//! down.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::input::Input;
use super::{admission, box_spec, context, process};
use crate::langbot::Era;

#[derive(Deserialize)]
struct Case {
    model: String,
    input: Input<'static>,
    dumped: Option<Value>,
    error: Option<String>,
}

/// What we refuse and the models accept: a part of our sentence, and why.
const REFUSED_BY_US: [(&str, &str); 13] = [
    (
        "_sec must be at most ",
        "later arithmetic must not overflow, and nobody waits that long",
    ),
    ("_mb must be at most ", "no box has that much"),
    ("pids_limit must be at most ", "the kernel has no more"),
    ("cpus must be at most ", "no box has that much"),
    (
        "cpus must be a finite number",
        "no box has infinitely many processors",
    ),
    (
        "must not contain NUL bytes",
        "the kernel ends texts there, and no process can be given one",
    ),
    (
        "must not contain control characters",
        "ids are printed on one line",
    ),
    (
        "must not contain an empty name",
        "no process can be given such a variable",
    ),
    (
        "must not contain `=` or NUL bytes",
        "no process can be given such a variable",
    ),
    ("not a Windows path", "nothing on this host could open it"),
    (
        "extra_mounts must have at most 64 entries, not 65",
        "so many mounts are a mistake or an attack",
    ),
    ("_id must be at most 256 bytes", "an id fits in a line"),
    (
        "_id must not be empty",
        "a process without a name cannot be asked for",
    ),
];

/// Numbers and times that the models can hold and we cannot.
const TOO_LARGE: [(&str, &str); 4] = [
    (
        "exceeded maximum size",
        "the JSON reader makes floats of integers beyond 64 bits",
    ),
    (
        "Value error, must be at most 9223372036854775807",
        "generations and revisions are 64 bits wide",
    ),
    (
        "expires_at is out of range",
        "our calendar ends a day before the year 10000",
    ),
    (
        "input_value='0001-01-01T00:00+01:00'",
        "there the model itself fails, with an error of another class",
    ),
];

/// Compares every case, and tells which of the intended differences were met.
fn check(text: &str, era: Era) -> HashSet<&'static str> {
    let cases: Vec<Case> = serde_json::from_str(text).expect("the golden file is JSON");
    assert!(cases.len() > 1000, "only {} cases", cases.len());
    let mut met = HashSet::new();
    let mut wrong = Vec::new();
    for case in &cases {
        let ours = ours(case, era);
        let same = match (&ours, &case.dumped, &case.error) {
            (Ok(ours), Some(theirs), _) => ours == theirs || differs_in_spelling(ours, theirs),
            (Err(ours), None, Some(theirs)) if !theirs.starts_with("OverflowError") => {
                ours == theirs || masked(ours, &case.input) == masked(theirs, &case.input)
            }
            (Err(ours), _, _) => {
                let intended = REFUSED_BY_US
                    .iter()
                    .chain(&TOO_LARGE)
                    .filter(|(sentence, _)| ours.contains(sentence));
                let sentences: Vec<&str> = intended.map(|(sentence, _)| *sentence).collect();
                met.extend(&sentences);
                !sentences.is_empty()
            }
            _ => false,
        };
        if !same {
            wrong.push(format!(
                "{} {:?}\n  ours:   {ours:?}\n  theirs: {:?} {:?}",
                case.model, case.input, case.dumped, case.error
            ));
        }
    }
    let first: Vec<&str> = wrong.iter().take(20).map(String::as_str).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} cases differ:\n{}",
        wrong.len(),
        cases.len(),
        first.join("\n")
    );
    met
}

/// Without the values that errors show of an environment, or of what has one in it: the models show
/// them, and we do not.
fn masked(text: &str, input: &Input<'_>) -> String {
    let mut location = "";
    let mut lines = Vec::new();
    for line in text.lines() {
        let shown = line.split_once("input_value=");
        match shown.and_then(|(before, rest)| Some((before, rest.rsplit_once(", input_type=")?))) {
            Some((before, (value, kind)))
                if location == "env"
                    || location.starts_with("env.")
                    || (value.starts_with('{') && input.member("env").is_some()) =>
            {
                lines.push(format!("{before}, {kind}"));
            }
            _ => lines.push(line.to_owned()),
        }
        if !line.starts_with(' ') {
            location = line;
        }
    }
    lines.join("\n")
}

#[test]
fn no_value_of_an_environment_is_shown() {
    for spec in [
        json!({"session_id": "s", "env": {"A": "secret\0"}}),
        json!({"session_id": "s", "env": {"A": ["secret"]}}),
        json!({"session_id": "s", "env": "secret"}),
        json!({"env": {"A": "secret"}}),
        json!({"session_id": "s", "env": {"secret=": "x"}}),
    ] {
        for era in [Era::June, Era::Today] {
            let input = Input::from(&spec);
            let spec_text = box_spec::read(&input, era).expect_err("refused");
            let process_text = process::read(&input, era).expect_err("refused");
            for text in [spec_text, process_text] {
                let shown = text.replace("`secret=`", "").replace("\"secret=\"", "");
                assert!(!shown.contains("secret"), "{text}");
            }
        }
    }
}

/// White space around a process id is not part of it here: one that differs only in blanks could not
/// be told from another in a log.
fn differs_in_spelling(ours: &Value, theirs: &Value) -> bool {
    let mut theirs = theirs.clone();
    if let Some(id) = theirs.get_mut("process_id") {
        *id = json!(id.as_str().unwrap_or_default().trim());
    }
    // A negative bound of a process means none, like 0.
    if let Some(bound) = theirs.get_mut("memory_mb")
        && bound.as_i64().is_some_and(|bound| bound < 0)
    {
        *bound = json!(0);
    }
    *ours == theirs
}

fn ours(case: &Case, era: Era) -> Result<Value, String> {
    match case.model.as_str() {
        "BoxSpec" => box_spec::read(&case.input, era).map(|given| spec_dump(&given, era)),
        "BoxManagedProcessSpec" => {
            let given = process::read(&case.input, era)?;
            let mut dump = serde_json::to_value(&given.spec).expect("a spec is JSON");
            if era == Era::Today {
                dump["memory_mb"] = json!(given.memory_mb);
            }
            Ok(dump)
        }
        "ActionContext" => context::read(&case.input).map(|given| {
            json!({
                "instance_uuid": given.instance_uuid,
                "workspace_uuid": given.workspace_uuid,
                "placement_generation": given.placement_generation,
                "installation_uuid": given.installation_uuid,
            })
        }),
        "SandboxAdmissionGrant" => admission::read_grant(&case.input).map(|given| {
            json!({
                "instance_uuid": given.instance_uuid,
                "workspace_uuid": given.workspace_uuid,
                "execution_generation": given.execution_generation,
                "entitlement_revision": given.entitlement_revision,
                "expires_at": pydantic_time(given.expires_at),
                "max_sessions": given.max_sessions,
                "max_managed_processes": given.max_managed_processes,
            })
        }),
        "SandboxAdmissionRevocation" => admission::read_revocation(&case.input).map(|given| {
            json!({
                "instance_uuid": given.instance_uuid,
                "workspace_uuid": given.workspace_uuid,
                "entitlement_revision": given.entitlement_revision,
            })
        }),
        other => panic!("no model {other}"),
    }
}

fn pydantic_time(at: jiff::Timestamp) -> String {
    let format = if at.subsec_nanosecond() == 0 {
        "%Y-%m-%dT%H:%M:%SZ"
    } else {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    };
    at.strftime(format).to_string()
}

/// All fields by hand: a default that was forgotten must not vanish from both sides.
fn spec_dump(given: &box_spec::GivenSpec, era: Era) -> Value {
    let request = &given.request;
    let mounts: Vec<Value> = request
        .extra_mounts
        .iter()
        .zip(&given.mount_proofs)
        .map(|(mount, proof)| {
            let mut dump = json!({
                "host_path": mount.host_path,
                "mount_path": mount.mount_path,
                "mode": mount.mode.as_str(),
            });
            if era == Era::Today {
                dump["content_digest"] = json!(proof.content_digest);
                dump["manifest_path"] = json!(proof.manifest_path);
            }
            dump
        })
        .collect();
    json!({
        "cmd": request.cmd,
        "workdir": request.workdir,
        "timeout_sec": request.timeout_sec,
        "network": request.network.map(boxwood_api::Network::as_str),
        "session_id": request.session_id.as_ref().map(boxwood_api::SessionId::as_str),
        "env": request.env,
        "image": request.image,
        "host_path": request.host_path,
        "host_path_mode": request.host_path_mode.map(boxwood_api::MountMode::as_str),
        "mount_path": request.mount_path,
        "extra_mounts": mounts,
        "persistent": request.persistent,
        "cpus": request.cpus,
        "memory_mb": request.memory_mb,
        "pids_limit": request.pids_limit,
        "read_only_rootfs": request.read_only_rootfs,
        "workspace_quota_mb": request.workspace_quota_mb,
    })
}

#[test]
fn both_eras_are_answered_like_their_models() {
    let june = include_str!("../../../tests/golden/pydantic-june.json");
    let today = include_str!("../../../tests/golden/pydantic-today.json");
    let mut met = check(june, Era::June);
    met.extend(check(today, Era::Today));
    for (sentence, _) in REFUSED_BY_US.iter().chain(&TOO_LARGE) {
        assert!(met.contains(sentence), "no case differs by {sentence:?}");
    }
}

fn refusal(data: &Value) -> String {
    let none = Map::new();
    let data = data.as_object().unwrap_or(&none);
    box_spec(data, Era::June).expect_err("must be refused")
}

#[test]
fn what_no_box_can_have_is_refused_in_the_same_shape() {
    let check = |data: Value, lines: &str| {
        let text = refusal(&data);
        let expected = format!(
            "1 validation error for BoxSpec\n{lines}]\n    For further information visit \
             https://errors.pydantic.dev/2.14/v/value_error"
        );
        assert_eq!(text, expected);
    };
    check(
        json!({"session_id": "x".repeat(257)}),
        "session_id\n  Value error, session_id must be at most 256 bytes, not 257 \
         [type=value_error, input_value='xxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxx', \
         input_type=str",
    );
    check(
        json!({"session_id": "s", "cpus": "inf"}),
        "cpus\n  Value error, cpus must be a finite number \
         [type=value_error, input_value='inf', input_type=str",
    );
    check(
        json!({"session_id": "s", "host_path": "C:\\x"}),
        "host_path\n  Value error, host_path must be a path of this host, not a Windows path \
         [type=value_error, input_value='C:\\\\x', input_type=str",
    );
    check(
        json!({"session_id": "s", "extra_mounts": [{"host_path": "/h", "mount_path": "/\0"}]}),
        "extra_mounts.0.mount_path\n  Value error, mount_path must not contain NUL bytes \
         [type=value_error, input_value='/\\x00', input_type=str",
    );
    let long = refusal(&json!({"session_id": "s", "cmd": "x".repeat(1024 * 1024 + 1)}));
    assert!(
        long.contains("cmd\n  Value error, cmd must be at most 1048576 bytes, not 1048577 ["),
        "{long}"
    );
}

#[test]
fn a_great_many_mistakes_are_counted_and_not_all_told() {
    let env: Map<String, Value> = (0..5000).map(|i| (format!("K{i}"), json!(i))).collect();
    let text = refusal(&json!({"session_id": "s", "env": env}));
    assert!(text.starts_with("5000 validation errors for BoxSpec\nenv.K0\n"));
    assert_eq!(text.matches("[type=string_type").count(), 100);
}
