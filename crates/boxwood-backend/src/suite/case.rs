//! One named test, and the way every one of them is run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::{Bench, Host, Offer};
use crate::BoxFuture;

/// Long enough for the slowest case on a busy machine, short enough that a hang is an answer.
const CASE_LIMIT: Duration = Duration::from_secs(150);

#[derive(Clone, Copy)]
pub struct Case {
    /// Group and name, `exec::exit_codes_are_exact`.
    pub name: &'static str,
    /// What it cannot do without.
    needs: &'static [&'static [Offer]],
    run: fn(&Bench) -> BoxFuture<'_, anyhow::Result<()>>,
}

impl Case {
    pub(super) const fn new(
        name: &'static str,
        needs: &'static [&'static [Offer]],
        run: fn(&Bench) -> BoxFuture<'_, anyhow::Result<()>>,
    ) -> Self {
        Self { name, needs, run }
    }

    /// The first thing it needs that this host's backend does not offer.
    pub fn not_offered(&self, host: &Host) -> Option<Offer> {
        let mut needs = self.needs.iter().copied().flatten().copied();
        needs.find(|need| !host.offers(*need))
    }
}

/// Names each function of a module once. They are private there, so one that is left out of this
/// list is dead code and the compiler says so. `needs` names what a group or a case cannot do
/// without: `"files" needs Files: one, two needs Terminal`.
macro_rules! cases {
    ($group:literal $(needs $($need:ident)+)?: $($name:ident $(needs $($own:ident)+)?),+ $(,)?) => {
        pub(super) fn cases() -> Vec<$crate::suite::Case> {
            const GROUP: &[$crate::suite::Offer] = &[$($($crate::suite::Offer::$need),+)?];
            vec![$($crate::suite::Case::new(
                concat!($group, "::", stringify!($name)),
                &[GROUP, &[$($($crate::suite::Offer::$own),+)?]],
                |bench| Box::pin($name(bench)),
            )),+]
        }
    };
}
pub(super) use cases;

/// Runs one case on a bench, then stops every box it left and lets go of the backend, whatever
/// came of it. A panic in a case is its failure, not the harness's.
pub async fn run_case(case: Case, bench: Bench) -> anyhow::Result<()> {
    let bench = Arc::new(bench);
    let task = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { (case.run)(&bench).await }
    });
    let abort = task.abort_handle();
    let outcome = match tokio::time::timeout(CASE_LIMIT, task).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(anyhow::anyhow!("the case panicked: {panic}")),
        Err(_) => {
            abort.abort();
            Err(anyhow::anyhow!("no end after {} s", CASE_LIMIT.as_secs()))
        }
    };
    let closed = bench.close().await.context("clean-up after the case");
    outcome.and(closed)
}
