//! Reads the configuration sources. Flags override environment variables, which override the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::{Table, Value};

use super::paths::DefaultPaths;
use super::tree::{Config, Tree};

const PREFIX: &str = "BOXWOOD_";

/// Variables with the prefix that are not daemon settings.
const NOT_SETTINGS: [&str; 6] = ["URL", "TOKEN", "CONFIG", "OUTPUT", "OPERATOR", "INIT"];

/// Values from the command line; `None` leaves them to the other sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub config: Option<PathBuf>,
    pub listen: Option<String>,
    pub state_dir: Option<PathBuf>,
    pub run_dir: Option<PathBuf>,
    pub backend: Option<String>,
    /// Overrides `shutdown.boxes`.
    pub on_shutdown: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read the configuration file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is not valid TOML: {message}", path.display())]
    Syntax { path: PathBuf, message: String },
    #[error("`{}`: `{key}`: {message}", path.display())]
    Key {
        path: PathBuf,
        key: String,
        message: String,
    },
    #[error("environment variable `{name}`: {message}")]
    Variable { name: String, message: String },
    #[error("`--{flag} {value}`: {message}")]
    Flag {
        flag: &'static str,
        value: String,
        message: String,
    },
    #[error("failed to make `{}` an absolute path", path.display())]
    Absolute { path: PathBuf, source: io::Error },
    #[error("no state directory: set `state_dir` or HOME")]
    NoStateDir,
    #[error(
        "`shutdown.boxes` leaves boxes running, but `recovery.grace_sec` is 0, which ends every box with its daemon"
    )]
    NothingKept,
    #[error(transparent)]
    Agent(#[from] boxwood_agent::ConfigError),
}

/// The environment variables that are valid UTF-8.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// All variables with the prefix.
    pub(super) fn with_prefix(&self, prefix: &str) -> Vec<(String, String)> {
        let all = self.0.iter().filter(|(name, _)| name.starts_with(prefix));
        all.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        )
    }
}

/// Reads the configuration of this process.
pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
    load_from(
        flags,
        std::env::vars_os(),
        rustix::process::geteuid().is_root(),
    )
}

/// Like [`load`], with explicit environment and user.
pub fn load_from(
    flags: &Flags,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    root: bool,
) -> Result<Config, ConfigError> {
    let environment = text_variables(variables)?;
    let defaults = DefaultPaths::new(&environment, root);
    let mut table = Table::new();
    if let Some(path) = file_to_read(flags, &environment, &defaults) {
        table = read_file(&path)?;
    }
    for (name, value) in &environment.0 {
        if let Some(path) = setting_path(name) {
            table = overlay_variable(&table, name, &path, value)?;
        }
    }
    table = overlay_flags(table, flags)?;
    let tree = Tree::deserialize(table).map_err(|error| ConfigError::Syntax {
        path: flags.config.clone().unwrap_or_default(),
        message: error.message().to_owned(),
    })?;
    tree.resolve(&defaults, &environment)
}

fn text_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Environment, ConfigError> {
    let mut texts = BTreeMap::new();
    for (name, value) in variables {
        let Ok(name) = name.into_string() else {
            continue;
        };
        match value.into_string() {
            Ok(value) => {
                texts.insert(name, value);
            }
            Err(_) if name.starts_with(PREFIX) => {
                return Err(ConfigError::Variable {
                    name,
                    message: "is not valid UTF-8".to_owned(),
                });
            }
            Err(_) => {}
        }
    }
    Ok(Environment(texts))
}

/// A file named by flag or variable must exist; the default files are optional.
fn file_to_read(
    flags: &Flags,
    environment: &Environment,
    defaults: &DefaultPaths,
) -> Option<PathBuf> {
    flags
        .config
        .clone()
        .or_else(|| environment.get("BOXWOOD_CONFIG").map(PathBuf::from))
        .or_else(|| {
            defaults
                .config_files
                .iter()
                .find(|path| path.exists())
                .cloned()
        })
}

fn read_file(path: &Path) -> Result<Table, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    let syntax = |error: &toml::de::Error| ConfigError::Syntax {
        path: path.to_owned(),
        message: error.to_string(),
    };
    let table: Table = text.parse().map_err(|error| syntax(&error))?;
    let tree = Tree::deserialize(table.clone()).map_err(|error| key_error(path, &error))?;
    tree.check_agent().map_err(|error| ConfigError::Key {
        path: path.to_owned(),
        key: "box".to_owned(),
        message: error.to_string(),
    })?;
    Ok(table)
}

/// `toml` names the key only in the text of its error: the message, then the line "in `KEY`".
fn key_error(path: &Path, error: &toml::de::Error) -> ConfigError {
    let text = error.to_string();
    let key = text
        .rsplit_once("in `")
        .map_or("", |(_, key)| key.trim_end().trim_end_matches('`'));
    ConfigError::Key {
        path: path.to_owned(),
        key: key.to_owned(),
        message: error.message().to_owned(),
    }
}

/// `BOXWOOD_SESSION__TTL_SEC` is `session.ttl_sec`.
fn setting_path(name: &str) -> Option<Vec<String>> {
    let name = name.strip_prefix(PREFIX)?;
    if NOT_SETTINGS.contains(&name) || name.starts_with("TEST_") {
        return None;
    }
    Some(
        name.to_ascii_lowercase()
            .split("__")
            .map(str::to_owned)
            .collect(),
    )
}

/// The type of a variable follows from its setting: it is tried as a TOML value, as a string and as a
/// comma-separated list, and the first form that the settings accept is used.
fn overlay_variable(
    table: &Table,
    name: &str,
    path: &[String],
    value: &str,
) -> Result<Table, ConfigError> {
    let items = || {
        let items = value
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        items.map(as_toml).collect()
    };
    let forms = [
        as_toml(value),
        Value::String(value.to_owned()),
        Value::Array(items()),
    ];
    let mut first_error = None;
    for form in forms {
        let mut candidate = table.clone();
        if !put(&mut candidate, path, form) {
            return Err(ConfigError::Variable {
                name: name.to_owned(),
                message: "addresses a key below a value that is not a table".to_owned(),
            });
        }
        match Tree::deserialize(candidate.clone()) {
            Ok(_) => return Ok(candidate),
            Err(error) => first_error.get_or_insert_with(|| error.message().to_owned()),
        };
    }
    Err(ConfigError::Variable {
        name: name.to_owned(),
        message: first_error.unwrap_or_default(),
    })
}

fn as_toml(text: &str) -> Value {
    format!("value = {text}")
        .parse::<Table>()
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Returns false if the path leads through a value that is not a table.
fn put(table: &mut Table, path: &[String], value: Value) -> bool {
    match path {
        [] => false,
        [key] => {
            table.insert(key.clone(), value);
            true
        }
        [key, rest @ ..] => table
            .entry(key.clone())
            .or_insert_with(|| Value::Table(Table::new()))
            .as_table_mut()
            .is_some_and(|inner| put(inner, rest, value)),
    }
}

fn overlay_flags(mut table: Table, flags: &Flags) -> Result<Table, ConfigError> {
    let path_text = |path: &Option<PathBuf>| {
        path.as_ref()
            .map(|path| path.to_string_lossy().into_owned())
    };
    let settings = [
        (&["listen"][..], "listen", flags.listen.clone()),
        (&["state_dir"], "state-dir", path_text(&flags.state_dir)),
        (&["run_dir"], "run-dir", path_text(&flags.run_dir)),
        (&["backend"], "backend", flags.backend.clone()),
        (
            &["shutdown", "boxes"],
            "on-shutdown",
            flags.on_shutdown.clone(),
        ),
    ];
    for (key, flag, value) in settings {
        let Some(value) = value else { continue };
        let key: Vec<String> = key.iter().map(|&part| part.to_owned()).collect();
        put(&mut table, &key, Value::String(value.clone()));
        if let Err(error) = Tree::deserialize(table.clone()) {
            return Err(ConfigError::Flag {
                flag,
                value,
                message: error.message().to_owned(),
            });
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use boxwood_session::ShutdownBoxes;

    use boxwood_backend_container::Engine;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let mut all = vec![("HOME".into(), "/home/a".into())];
        all.extend(
            pairs
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        all
    }

    fn load_text(text: &str, pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).expect("write");
        let flags = Flags {
            config: Some(path),
            ..Flags::default()
        };
        load_from(&flags, variables(pairs), false)
    }

    #[test]
    fn later_sources_win() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("config.toml");
        std::fs::write(
            &path,
            "listen = \"127.0.0.1:1\"\nbackend = \"file\"\n[session]\nttl_sec = 1\nmax_sessions = 7\n",
        )
        .expect("write");
        let flags = Flags {
            config: Some(path),
            listen: Some("127.0.0.1:3".to_owned()),
            ..Flags::default()
        };
        let config = load_from(
            &flags,
            variables(&[
                ("BOXWOOD_LISTEN", "127.0.0.1:2"),
                ("BOXWOOD_BACKEND", "variable"),
                ("BOXWOOD_SESSION__TTL_SEC", "2"),
                ("BOXWOOD_AUTH__TRUSTED_UIDS", "1000, 1001"),
                ("BOXWOOD_HTTP__HOSTS", "box.example.com"),
                ("BOXWOOD_URL", "http://elsewhere"),
                ("BOXWOOD_OPERATOR", "1"),
            ]),
            false,
        )
        .expect("valid");
        assert_eq!(
            config.listen,
            Some("127.0.0.1:3".parse().expect("an address"))
        );
        assert_eq!(config.backend, "variable");
        assert_eq!(config.session.ttl(), Duration::from_secs(2));
        assert_eq!(config.session.max_sessions, 7);
        assert_eq!(config.auth.trusted_uids, [1000, 1001]);
        assert_eq!(config.http.hosts, ["box.example.com"]);
    }

    #[test]
    fn a_daemon_may_listen_on_its_unix_socket_alone() {
        let config = load_text("listen = \"none\"\n", &[]).expect("valid");
        assert_eq!(config.listen, None);
        let config = load_text("", &[("BOXWOOD_LISTEN", "none")]).expect("valid");
        assert_eq!(config.listen, None);
    }

    #[test]
    fn an_error_names_the_file_and_the_key() {
        let check = |text: &str, expected: &[&str]| {
            let error = load_text(text, &[]).expect_err("invalid").to_string();
            for part in expected {
                assert!(error.contains(part), "`{error}` lacks `{part}`");
            }
        };
        check(
            "[session]\nttl_sek = 1\n",
            &["config.toml", "session", "ttl_sek"],
        );
        check(
            "[session]\nttl_sec = \"x\"\n",
            &["config.toml", "session.ttl_sec"],
        );
        check("listen = \"nowhere\"\n", &["config.toml", "`listen`"]);
        check("listen = \n", &["config.toml", "line 1"]);
        check(
            "[session]\nttl_sec = -1\n",
            &["config.toml", "session.ttl_sec"],
        );
    }

    #[test]
    fn shutdown_and_recovery_settings_are_validated() {
        let config = load_text("", &[]).expect("valid");
        assert_eq!(config.shutdown.boxes, ShutdownBoxes::Stop);
        assert_eq!(config.recovery.grace(), Duration::from_hours(1));
        let text = "[recovery]\ngrace_sec = 60\n[shutdown]\nboxes = \"stop_ephemeral\"\n";
        let config = load_text(text, &[("BOXWOOD_RECOVERY__GRACE_SEC", "7")]).expect("valid");
        assert_eq!(config.shutdown.boxes, ShutdownBoxes::StopEphemeral);
        assert_eq!(config.recovery.grace_sec, 7);

        for (text, parts) in [
            (
                "[shutdown]\nboxes = \"kill\"\n",
                ["shutdown.boxes", "stop_ephemeral"],
            ),
            (
                "[shutdown]\nbox = \"keep\"\n",
                ["shutdown", "unknown field `box`"],
            ),
            (
                "[recovery]\ngrace_sec = -1\n",
                ["recovery.grace_sec", "config.toml"],
            ),
            (
                "[recovery]\ngrace_sec = 99999999999\n",
                ["recovery.grace_sec", "a year"],
            ),
            (
                "[recovery]\ngrace_sec = 0\n[shutdown]\nboxes = \"keep\"\n",
                ["shutdown.boxes", "recovery.grace_sec"],
            ),
        ] {
            let error = load_text(text, &[]).expect_err("invalid").to_string();
            for part in parts {
                assert!(error.contains(part), "`{error}` lacks `{part}`");
            }
        }
    }

    #[test]
    fn the_flag_overrides_the_variable_for_shutdown_boxes() {
        let flags = |value: &str| Flags {
            config: Some("/dev/null".into()),
            on_shutdown: Some(value.to_owned()),
            ..Flags::default()
        };
        let environment = variables(&[("BOXWOOD_SHUTDOWN__BOXES", "stop_ephemeral")]);
        let config = load_from(&flags("keep"), environment, false).expect("valid");
        assert_eq!(config.shutdown.boxes, ShutdownBoxes::Keep);
        let error = load_from(&flags("Keep"), variables(&[]), false).expect_err("invalid");
        assert!(error.to_string().contains("--on-shutdown Keep"), "{error}");
    }

    #[test]
    fn an_error_in_the_environment_names_the_variable() {
        let check = |name: &str, value: &str| {
            let error = load_text("", &[(name, value)])
                .expect_err("invalid")
                .to_string();
            assert!(error.contains(name), "`{error}` lacks `{name}`");
        };
        check("BOXWOOD_LISTN", "127.0.0.1:1");
        check("BOXWOOD_SESSION__TTL_SEC", "soon");
        check("BOXWOOD_LISTEN__PORT", "1");
    }

    #[test]
    fn a_named_file_must_exist() {
        let flags = Flags {
            config: Some("/nonexistent/config.toml".into()),
            ..Flags::default()
        };
        let error = load_from(&flags, variables(&[]), false).expect_err("no file");
        assert!(matches!(error, ConfigError::Read { .. }));
    }

    /// Every documented key exists, and every default is the documented one.
    #[test]
    fn the_documented_configuration_is_the_default_one() {
        let page = include_str!("../../../../docs/configuration.md");
        let (_, rest) = page.split_once("```toml\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("its end");
        let (defaults, _) = example.split_once("[profiles.build]").expect("a profile");
        load_text(example, &[]).expect("the whole example is valid");
        let documented = load_text(defaults, &[]).expect("valid");
        let mut defaults_only = load_from(&Flags::default(), variables(&[]), true).expect("valid");
        defaults_only.policy.default_profile = Some("default".to_owned());
        // The documented file sets `backend` explicitly.
        defaults_only.backend_chosen = true;
        // It names the programs, of which the default depends on the engine.
        for (engine, config) in [
            (Engine::Docker, &mut defaults_only.docker),
            (Engine::Podman, &mut defaults_only.podman),
        ] {
            config.program = Some(engine.name().to_owned());
        }
        assert_eq!(format!("{documented:#?}"), format!("{defaults_only:#?}"));
    }

    #[test]
    fn the_default_run_directory_is_below_a_configured_state_directory() {
        let flags = Flags {
            state_dir: Some("/srv/a".into()),
            ..Flags::default()
        };
        let config = load_from(&flags, variables(&[]), true).expect("valid");
        assert_eq!(config.run_dir, PathBuf::from("/srv/a/run"));
    }

    #[test]
    fn the_box_table_configures_the_agent() {
        let config = load_text(
            "[box]\nenabled = \"no\"\noutput_limit_chars = 100\n[box.local]\nhost_root = \"/srv/box\"\nprofile = \"mine\"\n[profiles.mine]\nextends = \"default\"\n",
            &[("BOX__ENABLED", "true"), ("BOX__LOCAL__WORKSPACE_QUOTA_MB", "64")],
        )
        .expect("fine");
        let agent = &config.agent;
        assert!(agent.enabled, "the variable wins");
        assert_eq!(agent.profile, "mine");
        assert_eq!(agent.output_limit_chars, 100);
        assert_eq!(agent.workspace_quota_mb, Some(64));
        assert_eq!(agent.default_workspace, Some("/srv/box/default".into()));
        assert_eq!(agent.allowed_mount_roots, [PathBuf::from("/srv/box")]);
        assert_eq!(
            crate::skills_root(&config),
            PathBuf::from("/srv/box/skills")
        );

        let config = load_text("", &[]).expect("fine");
        assert_eq!(config.agent, boxwood_agent::AgentSettings::default());
        let own = load_text("", &[("BOXWOOD_BOX__ENABLED", "false")]).expect("fine");
        assert!(!own.agent.enabled);
        let guard = [(
            "SYSTEM__LIMITATION__FORCE_BOX_SESSION_ID_TEMPLATE",
            "{global}",
        )];
        let guarded = load_text("", &guard).expect("fine");
        assert!(guarded.agent.forced_template.is_some());
    }

    #[test]
    fn an_error_in_the_box_table_names_the_key() {
        let refused = |text: &str, parts: &[&str]| {
            let message = load_text(text, &[]).expect_err("refused").to_string();
            for part in parts.iter().chain(&["config.toml"]) {
                assert!(message.contains(part), "`{message}` lacks `{part}`");
            }
        };
        refused("[box]\nenabeld = true\n", &["box.enabeld"]);
        refused("[box.local]\nroot = \"x\"\n", &["box.local.root"]);
        refused("[box]\nlocal = 7\n", &["box.local"]);
        refused(
            "[box.local]\nworkspace_quota_mb = \"much\"\n",
            &["workspace_quota_mb must be an integer greater than or equal to 0"],
        );
        refused(
            "[box.local]\nprofile = \"nope\"\n",
            &[
                "unknown box profile 'nope', available profiles: default, network_basic, network_extended, offline_readonly",
            ],
        );
        refused(
            "[box]\nforce_session_id_template = \"{a\"\n",
            &["box.force_session_id_template"],
        );
        let message = load_text("", &[("BOX__LOCAL__WORKSPACE_QUOTA_MB", "-1")]);
        let message = message.expect_err("refused").to_string();
        assert!(message.contains("workspace_quota_mb"), "{message}");
    }
}
