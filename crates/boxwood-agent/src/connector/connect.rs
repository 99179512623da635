//! An agent with its boxes, wherever the configuration says they are.

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_client::{ClientError, Token};

use super::child::ChildSettings;
use super::endpoint::RuntimeLocation;
use super::{Availability, Connector};
use crate::agent::Agent;
use crate::config::AgentSettings;
use crate::default_workspace::WorkspaceError;

/// What is known of the place this program runs in. The configuration says the rest.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// This program runs in a container beside one with the runtime.
    pub in_docker: bool,
    /// A runtime on this machine is started separately and listens on the default port.
    pub standalone: bool,
    /// For a runtime that wants one.
    pub token: Option<Token>,
    /// Whether paths of the host mean the same there as here, where the guess would be wrong.
    pub shares_filesystem: Option<bool>,
    /// The `boxwood` program, for a runtime of our own.
    pub program: PathBuf,
    /// Where a runtime of our own keeps what it has; a private directory when left out.
    pub state_dir: Option<PathBuf>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            in_docker: false,
            standalone: false,
            token: None,
            shares_filesystem: None,
            program: PathBuf::from("boxwood"),
            state_dir: None,
        }
    }
}

impl ConnectOptions {
    /// As an environment has it: `DOCKER_ENV=true`, whether there is a `/.dockerenv`, and
    /// `BOXWOOD_TOKEN`.
    pub fn of(
        variable: impl Fn(&str) -> Option<String>,
        docker_marker: bool,
    ) -> Result<Self, ConnectError> {
        let token = variable("BOXWOOD_TOKEN").filter(|token| !token.trim().is_empty());
        let token = token.map(|token| Token::new(&token)).transpose()?;
        let told = variable("DOCKER_ENV").is_some_and(|value| value == "true");
        Ok(Self {
            in_docker: told || docker_marker,
            token,
            ..Self::default()
        })
    }
}

/// The configuration cannot be used. A runtime that is not there is no such thing: it may come.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("box.runtime.endpoint: {0}")]
    Endpoint(#[from] ClientError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

/// An agent and the connection below it.
pub struct ConnectedAgent {
    agent: Agent,
    connector: Option<Connector>,
}

impl ConnectedAgent {
    /// Cheap to clone.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// `None` where boxes are off.
    pub fn connector(&self) -> Option<&Connector> {
        self.connector.as_ref()
    }

    /// Lets running calls end for a while, then lets go of the runtime. One of our own is ended with all
    /// its boxes.
    pub async fn dispose(self) {
        if let Some(connector) = &self.connector {
            connector.dispose().await;
        }
    }
}

/// Makes an agent whose boxes are where the settings say: with an endpoint at that endpoint, in a
/// container beside this one, or in a daemon that is started for this agent alone. Answers when the
/// first try has come to something. A runtime that is not there is looked for until it is; meanwhile
/// every tool refuses with the reason. Settings that say off start nothing.
///
/// ```no_run
/// use boxwood_agent::{AgentSettings, NoProgress, ConnectOptions, connect};
/// use boxwood_api::{AgentQuery, ToolCall};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = AgentSettings {
///     endpoint: Some("http://127.0.0.1:5410".to_owned()),
///     ..AgentSettings::default()
/// };
/// let in_docker = std::path::Path::new("/.dockerenv").exists();
/// let options = ConnectOptions::of(|name| std::env::var(name).ok(), in_docker)?;
/// let connected = connect(&settings, options).await?;
/// let call = ToolCall {
///     arguments: serde_json::from_str(r#"{"command": "echo $((6 * 7))"}"#)?,
///     query: AgentQuery {
///         launcher_type: Some("person".to_owned()),
///         launcher_id: Some("ada".into()),
///         ..AgentQuery::default()
///     },
/// };
/// let answer = connected.agent().call("exec", call, &NoProgress).await?;
/// assert_eq!(answer.result["stdout"], "42\n");
/// connected.dispose().await;
/// # Ok(())
/// # }
/// ```
pub async fn connect(
    settings: &AgentSettings,
    options: ConnectOptions,
) -> Result<ConnectedAgent, ConnectError> {
    if !settings.enabled {
        return Ok(ConnectedAgent {
            agent: Agent::disabled(settings.clone()),
            connector: None,
        });
    }
    let endpoint = settings.endpoint.as_deref();
    let place = RuntimeLocation::choose(endpoint, options.in_docker, options.standalone)?;
    let shares = place.shares_filesystem(options.shares_filesystem);
    if shares {
        settings.prepare_default_workspace()?;
    }
    let child = ChildSettings {
        state_dir: options.state_dir,
        backend: named_backend(&settings.backend),
        skills_root: settings.skills_root.clone(),
        allowed_mount_roots: settings.allowed_mount_roots.clone(),
        ..ChildSettings::new(options.program)
    };
    let connector = Connector::open(place, options.token, child, shares);
    if let Availability::Unavailable(outage) = connector.settled().await {
        tracing::warn!(reason = outage.reason, fix = outage.fix, "no box runtime");
    }
    let agent = Agent::new(Arc::new(connector.boxes()), settings.clone());
    Ok(ConnectedAgent {
        agent,
        connector: Some(connector),
    })
}

/// `local` leaves the choice to the runtime.
fn named_backend(backend: &str) -> Option<String> {
    let named = !matches!(backend.trim(), "" | "local" | "auto");
    named.then(|| backend.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)], marker: bool) -> ConnectOptions {
        let find = |name: &str| {
            let pair = pairs.iter().find(|(known, _)| *known == name);
            pair.map(|(_, value)| (*value).to_owned())
        };
        ConnectOptions::of(find, marker).unwrap()
    }

    #[test]
    fn a_container_is_known_by_its_variable_or_its_file() {
        assert!(!options(&[], false).in_docker);
        assert!(options(&[], true).in_docker);
        assert!(options(&[("DOCKER_ENV", "true")], false).in_docker);
        assert!(!options(&[("DOCKER_ENV", "false")], false).in_docker);
    }

    #[test]
    fn a_token_is_read_and_an_empty_one_is_none() {
        assert!(options(&[("BOXWOOD_TOKEN", " ")], false).token.is_none());
        assert!(options(&[("BOXWOOD_TOKEN", "t")], false).token.is_some());
    }

    #[tokio::test]
    async fn what_is_off_starts_nothing_and_connects_to_nothing() {
        let settings = AgentSettings {
            enabled: false,
            endpoint: Some("not an address at all\n".to_owned()),
            ..AgentSettings::default()
        };
        let connected = connect(&settings, ConnectOptions::default()).await.unwrap();
        assert!(connected.connector().is_none());
        assert!(connected.agent().boxes().is_none());
        connected.dispose().await;
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_read_is_named_with_its_key() {
        let settings = AgentSettings {
            endpoint: Some("ftp://x".to_owned()),
            ..AgentSettings::default()
        };
        let error = connect(&settings, ConnectOptions::default()).await;
        let error = error.err().unwrap().to_string();
        assert!(
            error.starts_with("box.runtime.endpoint: `ftp://x`"),
            "{error}"
        );
    }
}
