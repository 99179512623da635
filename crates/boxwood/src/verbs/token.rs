//! `boxwood token`: access tokens of the daemon.

use std::path::PathBuf;

use boxwood_api::ErrorCode;
use boxwood_server::{Flags, TokenError, Tokens, config};
use serde::Serialize;

use super::ago;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  boxwood token create ci           Prints the token, once; only its hash is kept
  export BOXWOOD_TOKEN=$(boxwood token create laptop)
  boxwood token ls
  boxwood token rm ci               It stops working at once

Run it as the daemon's own user: tokens are kept in the daemon's state directory.";

/// Manage access tokens
///
/// On the same machine the daemon's own user and root need no token. Other users send one, as
/// `Authorization: Bearer` or `X-API-Key`; client verbs take it from `BOXWOOD_TOKEN`.
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
    /// Make a token and print it
    ///
    /// This is the only time it can be seen.
    Create {
        /// What the token is for
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

#[derive(Serialize)]
struct Created<'a> {
    name: &'a str,
    token: &'a str,
}

#[derive(Serialize)]
struct Deleted<'a> {
    deleted: &'a [String],
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
            if output.is_json() {
                Output::json(&Created {
                    name,
                    token: new.reveal(),
                })
            } else {
                Output::line(new.reveal())
            }
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
            for name in names {
                tokens.revoke(name)?;
                if !output.is_json() {
                    Output::line(&printable(name))?;
                }
            }
            if output.is_json() {
                Output::json(&Deleted { deleted: names })?;
            }
            Ok(())
        }
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let (code, hint) = match &error {
            TokenError::Exists { .. } => (
                ErrorCode::ValidationError,
                Some("remove it first with `boxwood token rm`, or take another name"),
            ),
            TokenError::Unknown { .. } => (
                ErrorCode::NotFound,
                Some("`boxwood token ls` shows the names"),
            ),
            TokenError::Name { .. } => (ErrorCode::ValidationError, None),
            TokenError::Read { .. } | TokenError::Write { .. } => (
                ErrorCode::InternalError,
                Some("run it as the daemon's own user, with its `--state-dir`"),
            ),
            TokenError::Parse { .. } | TokenError::Random { .. } => {
                (ErrorCode::InternalError, None)
            }
        };
        Self::new(code, error).maybe_hint(hint.map(str::to_owned))
    }
}
