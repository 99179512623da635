//! `boxwood cp`: files into a box and out of it.

use std::sync::Arc;

use boxwood_client::Client;

use crate::copy::{Progress, into_box, out_of_box};
use crate::failure::{Failure, Outcome};
use crate::flags::CopyPath;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood cp report.csv build:/workspace/               Copy a file into the session `build`
  boxwood cp build:/workspace/out.txt .                 Copy a file from it
  boxwood cp src build:/workspace                       Copy a directory, as /workspace/src
  boxwood cp src/. build:/workspace                     Copy the contents of a directory

If a path on this machine contains `:/`, prefix it with `./`.";

/// Copy files between this machine and a session
///
/// One side is `SESSION:/path`. Directories are copied recursively. Symbolic links inside a directory are
/// skipped with a message, in both directions.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Source: a path, or `SESSION:/path`
    source: CopyPath,

    /// Destination: a path, or `SESSION:/path`
    target: CopyPath,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let progress = Arc::new(Progress::new());
    match (&args.source, &args.target) {
        (CopyPath::Local(source), CopyPath::InSession { session, path }) => {
            into_box(client, source, session, path, &progress).await?;
        }
        (CopyPath::InSession { session, path }, CopyPath::Local(target)) => {
            out_of_box(client, session, path, target, &progress).await?;
        }
        (CopyPath::Local(_), CopyPath::Local(_)) => {
            return Err(Failure::usage("neither side is in a session")
                .hint("write one side as SESSION:/path"));
        }
        (CopyPath::InSession { .. }, CopyPath::InSession { .. }) => {
            return Err(Failure::usage("both sides are in a session")
                .hint("copy to this machine first, then into the other session"));
        }
    }
    let copied = progress.finish();
    if output.is_json() {
        Output::json(&copied)?;
    }
    Ok(())
}
