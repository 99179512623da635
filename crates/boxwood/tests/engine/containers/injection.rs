//! Texts that could be taken for options, separators or further arguments, in every field of a request. Each is passed on
//! unchanged or refused, and none changes the configuration of a container.

use serde_json::{Value, json};

use crate::boxes::{id, stdout_of};
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::request::{ask, segment};

fn texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "-x",
        "--privileged",
        "--volume=/:/host",
        "-v",
        "--",
        "a b",
        "a\nb",
        "--label\n--privileged",
        "a:b:rw",
        "a,readonly=false,source=/",
        "a=b",
        "\"quoted\" 'twice'",
        "$(touch /tmp/x)`id`;id|id&",
        "{{.Id}} %s \\n",
        "nul\0nul",
        "tab\tbell\u{7}",
        "grüße-日本語-\u{1f980}",
        "../../etc",
        "*?[a-z]~",
        "#comment",
    ]
    .map(str::to_owned)
    .into();
    texts.push("l".repeat(256));
    texts.push("l".repeat(257));
    texts.push("-".repeat(5000));
    texts
}

/// The configuration of a container, without values that always differ.
fn shape(engine: &Engine, container: &str) -> Value {
    let inspected = engine.inspect(container);
    let mut shape = json!({
        "config": inspected["Config"],
        "host": inspected["HostConfig"],
        "mounts": inspected["Mounts"].as_array().map(Vec::len),
    });
    // Podman lists sets in any order.
    for path in [
        "/host/CapAdd",
        "/host/CapDrop",
        "/host/SecurityOpt",
        "/config/Env",
    ] {
        if let Some(Value::Array(set)) = shape.pointer_mut(path) {
            set.sort_by_key(Value::to_string);
        }
    }
    if let Some(annotations) = shape["config"]["Annotations"].as_object_mut() {
        annotations.remove("io.kubernetes.cri-o.Created");
    }
    for (part, keys) in [
        ("config", &["Labels", "CreateCommand", "Hostname"][..]),
        (
            "host",
            &[
                "Mounts",
                "Binds",
                "IDMappings",
                "ContainerIDFile",
                "LogConfig",
            ][..],
        ),
    ] {
        let object = shape[part].as_object_mut().expect("an object");
        for key in keys {
            object.remove(*key);
        }
    }
    shape
}

/// Creates sessions with a text in each field.
struct Bench {
    engine: Engine,
    daemon: Daemon,
    plain: Value,
}

impl Bench {
    async fn new(settings: &[(&'static str, String)]) -> Self {
        let engine = Engine::chosen();
        let mut daemon_settings = engine.daemon_settings();
        daemon_settings.settings.extend(settings.iter().cloned());
        let daemon = Daemon::start(&daemon_settings).await;
        stdout_of(&daemon.client, "plain", "true").await;
        let container = daemon
            .client
            .session(&id("plain"))
            .await
            .expect("it is there");
        let plain = shape(&engine, &container.session.backend_session_id);
        Self {
            engine,
            daemon,
            plain,
        }
    }

    async fn exec(&self, session: &str, body: &Value) -> (u16, Value) {
        let path = format!("/v1/sessions/{}/exec", segment(session));
        ask(&self.daemon, "POST", &path, Some(body)).await
    }

    /// Checks that the container has the usual configuration, and deletes the session.
    async fn is_plain_and_goes(&self, session: &str) -> Value {
        let path = format!("/v1/sessions/{}", segment(session));
        let (status, response) = ask(&self.daemon, "GET", &path, None).await;
        assert_eq!(status, 200, "{session:?}: {response}");
        let container = response["backend_session_id"].as_str().expect("a name");
        assert_eq!(shape(&self.engine, container), self.plain, "{session:?}");
        let inspected = self.engine.inspect(container);
        let (status, response) = ask(&self.daemon, "DELETE", &path, None).await;
        assert_eq!(status, 200, "{session:?}: {response}");
        inspected
    }
}

/// The response is a client error with a specific code.
#[track_caller]
fn is_refused(what: &str, text: &str, (status, body): &(u16, Value)) {
    assert!(
        (400..500).contains(status),
        "{what} {text:?}: {status} {body}"
    );
    let code = body["error"]["code"].as_str().unwrap_or_default();
    let typed = [
        "validation_error",
        "image_not_found",
        "not_found",
        "forbidden",
    ];
    assert!(
        typed.contains(&code) || code == "payload_too_large",
        "{what} {text:?}: {body}"
    );
}

fn is_fine_id(text: &str) -> bool {
    text.len() <= 256 && !text.chars().any(char::is_control)
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ids_are_labels_and_nothing_else() {
    let bench = Bench::new(&[]).await;
    for text in texts() {
        let answer = bench.exec(&text, &json!({"cmd": "echo hello"})).await;
        if !is_fine_id(&text) {
            is_refused("session", &text, &answer);
            continue;
        }
        assert_eq!(answer.0, 200, "{text:?}: {}", answer.1);
        assert_eq!(answer.1["stdout"], "hello\n", "{text:?}");
        let inspected = bench.is_plain_and_goes(&text).await;
        let label = &inspected["Config"]["Labels"]["langbot.session_id"];
        assert_eq!(label, &json!(text));
    }
    bench.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_is_given_arrives_as_it_is() {
    let bench = Bench::new(&[]).await;
    for text in texts() {
        let value = json!({"cmd": "printf %s \"$GIVEN\"", "env": {"GIVEN": &text}});
        let answer = bench.exec("plain", &value).await;
        if text.contains('\0') {
            is_refused("value", &text, &answer);
        } else {
            assert_eq!(
                answer.1["stdout"],
                json!(text),
                "value {text:?}: {}",
                answer.1
            );
        }

        // Read from `/proc`, because the shell rewrites the variables that it passes on.
        let name = json!({"cmd": "cat /proc/$$/environ; true", "env": {&text: "given"}});
        let answer = bench.exec("plain", &name).await;
        if answer.0 == 200 {
            let environment = answer.1["stdout"].as_str().expect("text");
            let expected = format!("{text}=given");
            let mut found = environment.split('\0');
            assert!(
                found.any(|entry| entry == expected),
                "name {text:?}: {environment:?}"
            );
        } else {
            is_refused("name", &text, &answer);
        }

        let input = json!({"cmd": "cat", "stdin": &text});
        let answer = bench.exec("plain", &input).await;
        assert_eq!(
            answer.1["stdout"],
            json!(text),
            "stdin {text:?}: {}",
            answer.1
        );

        // The shell in the box interprets the command; the container is unchanged.
        let answer = bench
            .exec("plain", &json!({"cmd": &text, "timeout_sec": 10}))
            .await;
        if answer.0 != 200 {
            is_refused("command", &text, &answer);
        }

        let directory = format!("/workspace/{text}");
        let make = json!({"cmd": "mkdir -p -- \"$D\"", "env": {"D": &directory}});
        let made = bench.exec("plain", &make).await;
        let there = json!({"cmd": "pwd", "workdir": &directory});
        let answer = bench.exec("plain", &there).await;
        if answer.0 == 200 && made.1["exit_code"] == 0 && !text.contains("..") {
            let expected = format!("{}\n", directory.trim_end().trim_end_matches('/'));
            assert_eq!(
                answer.1["stdout"],
                json!(expected),
                "workdir {text:?}: {}",
                answer.1
            );
        } else if answer.0 != 200 {
            is_refused("workdir", &text, &answer);
        }
    }
    bench.is_plain_and_goes("plain").await;
    bench.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_with_such_names_are_refused() {
    let bench = Bench::new(&[]).await;
    let before = bench.engine.containers();
    for text in texts() {
        let answer = bench
            .exec("image", &json!({"cmd": "true", "image": &text}))
            .await;
        is_refused("image", &text, &answer);
    }
    let after = bench.engine.containers();
    let new = after
        .difference(&before)
        .find(|name| name.contains("-image-"));
    assert_eq!(new, None, "a container is left");
    bench.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_with_such_names_are_the_directories_they_name() {
    let root = tempfile::tempdir().expect("a directory");
    let roots = format!("[{:?}]", root.path().display().to_string());
    let bench = Bench::new(&[("BOXWOOD_MOUNTS__ALLOWED_ROOTS", roots)]).await;
    for text in texts() {
        if text.contains("..") {
            continue;
        }
        let host_path = root.path().join(&text);
        let exists = std::fs::create_dir_all(&host_path).is_ok();
        if exists {
            std::fs::write(host_path.join("here"), &text).expect("it is written");
        }
        let mount_path = format!("/mnt/{text}");
        let mount = json!({
            "cmd": "cat \"$M/here\"",
            "env": {"M": &mount_path},
            "extra_mounts": [{
                "host_path": host_path.display().to_string(),
                "mount_path": &mount_path,
                "mode": "ro",
            }],
        });
        let answer = bench.exec("mounted", &mount).await;
        if answer.0 != 200 {
            is_refused("mount", &text, &answer);
            continue;
        }
        assert!(exists, "{text:?} cannot exist");
        assert_eq!(
            answer.1["stdout"],
            json!(text),
            "mount {text:?}: {}",
            answer.1
        );
        bench.is_plain_and_goes("mounted").await;
    }
    bench.daemon.stop().await;
}
