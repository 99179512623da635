//! `boxwood token`: access tokens of the daemon.

use std::path::PathBuf;

use boxwood_api::ErrorCode;
use boxwood_server::{Flags, TokenError, Tokens, config};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::table::Table;
use crate::output::{Output, ago};
use crate::verbs::deletions::Deletions;

const EXAMPLES: &str = "\
Examples:
  boxwood token create ci           Print a new token. It cannot be shown again
  export BOXWOOD_TOKEN=$(boxwood token create laptop)
  boxwood token ls
  boxwood token rm ci               Revoke a token immediately

Run this command as the daemon's user: tokens are stored in the daemon's state directory.";

/// Manage access tokens
///
/// On the same machine the daemon's own user and root need no token. Other users send one, as
/// `Authorization: Bearer` or `X-API-Key`; the `boxwood` command takes it from `BOXWOOD_TOKEN`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// State directory of the daemon
    #[arg(
        long,
        value_name = "DIR",
        env = "BOXWOOD_STATE_DIR",
        hide_env_values = true,
        global = true
    )]
    state_dir: Option<PathBuf>,

    /// Configuration file of the daemon
    #[arg(
        long,
        value_name = "FILE",
        env = "BOXWOOD_CONFIG",
        hide_env_values = true,
        global = true
    )]
    config: Option<PathBuf>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a token and print it
    ///
    /// Only its hash is stored, so it cannot be shown again.
    Create {
        /// Name of the token, such as its purpose
        name: String,
    },
    /// List tokens by name
    Ls,
    /// Remove tokens
    Rm {
        /// Names of the tokens
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

pub(crate) fn main(args: &Args, output: Output) -> Outcome<()> {
    let config = config::load(&Flags {
        config: args.config.clone(),
        state_dir: args.state_dir.clone(),
        ..Flags::default()
    })?;
    let tokens = Tokens::new(&config.state_dir);
    match &args.action {
        Action::Create { name } => {
            let new = tokens.create(name)?;
            let token = new.reveal();
            output.name_or(&json!({"name": name, "token": token}), token)
        }
        Action::Ls => {
            let list = tokens.list()?;
            output.table_or(&list, || {
                let mut table = Table::new(&["NAME", "CREATED"]);
                for token in &list {
                    table.row([token.name.as_str().into(), ago(token.created_at).into()]);
                }
                table
            })
        }
        Action::Rm { names } => {
            let mut deletions = Deletions::new(output);
            for name in names {
                match tokens.revoke(name) {
                    Ok(()) => deletions.deleted(name)?,
                    Err(error) => deletions.failed(error.into()),
                }
            }
            deletions.finish("deleted")
        }
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let (code, hint) = match &error {
            TokenError::Exists { .. } => (
                ErrorCode::ValidationError,
                Some("remove it first with `boxwood token rm`, or choose another name"),
            ),
            TokenError::Unknown { .. } => (
                ErrorCode::NotFound,
                Some("`boxwood token ls` shows the names"),
            ),
            TokenError::Name { .. } => (ErrorCode::ValidationError, None),
            TokenError::Read { .. } | TokenError::Write { .. } => (
                ErrorCode::InternalError,
                Some("run the command as the daemon's user, with its `--state-dir`"),
            ),
            TokenError::Parse { .. } | TokenError::Random { .. } => {
                (ErrorCode::InternalError, None)
            }
        };
        Self::new(code, error).maybe_hint(hint.map(str::to_owned))
    }
}
