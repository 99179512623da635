//! `boxwood create`: a session without a command.

use boxwood_api::{SessionId, SpecRequest};
use boxwood_client::Client;

use super::session_id;
use crate::failure::Outcome;
use crate::flags::BoxFlags;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood create build --memory 2g --network
  boxwood create review --workspace ~/src/project:ro --profile offline_readonly";

/// Create a session
///
/// Prints the session's name once its box is up. A session that exists and fits is left as it is; one
/// that differs is a conflict, and the answer names the field.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Keep the session when it is idle
    #[arg(long)]
    persistent: bool,

    #[command(flatten)]
    the_box: BoxFlags,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let mut request = SpecRequest::default();
    args.the_box.fill(&mut request);
    if args.persistent {
        request.persistent = Some(true);
    }
    let session = client.create_session(&args.session, &request).await?;
    output.name_or(&session, session.session_id.as_str())
}
