//! A named test of a suite, and how it is run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::{Feature, Fixture, Host};
use boxwood_backend::BoxFuture;

/// Long enough for the slowest case on a busy machine, and shorter than the timeout of the test runner.
const CASE_LIMIT: Duration = Duration::from_secs(150);

#[derive(Clone, Copy)]
pub struct Case {
    /// Group and name, `exec::exit_codes_are_exact`.
    pub name: &'static str,
    /// Features of the backend that the case uses.
    needs: &'static [&'static [Feature]],
    run: fn(&Fixture) -> BoxFuture<'_, anyhow::Result<()>>,
}

impl Case {
    pub(crate) const fn new(
        name: &'static str,
        needs: &'static [&'static [Feature]],
        run: fn(&Fixture) -> BoxFuture<'_, anyhow::Result<()>>,
    ) -> Self {
        Self { name, needs, run }
    }

    /// The first feature it needs that this host's backend does not offer.
    pub fn missing_feature(&self, host: &Host) -> Option<Feature> {
        let mut needs = self.needs.iter().copied().flatten().copied();
        needs.find(|need| !host.has_feature(*need))
    }
}

/// Lists the cases of a module. The functions are private, so the compiler reports one that is not in the list as
/// dead code. `needs` names the features that a group or a case uses: `"files" needs Files: one, two needs Terminal`.
macro_rules! cases {
    ($group:literal $(needs $($need:ident)+)?: $($name:ident $(needs $($own:ident)+)?),+ $(,)?) => {
        pub(super) fn cases() -> Vec<$crate::Case> {
            const GROUP: &[$crate::Feature] = &[$($($crate::Feature::$need),+)?];
            vec![$($crate::Case::new(
                concat!($group, "::", stringify!($name)),
                &[GROUP, &[$($($crate::Feature::$own),+)?]],
                |fixture| Box::pin($name(fixture)),
            )),+]
        }
    };
}
pub(crate) use cases;

/// Runs one case, then stops every box that it left running and shuts the backend down, also after a failure. A panic
/// counts as a failure of the case.
pub async fn run_case(case: Case, fixture: Fixture) -> anyhow::Result<()> {
    let fixture = Arc::new(fixture);
    let task = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move { (case.run)(&fixture).await }
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
    let closed = fixture.close().await.context("clean-up after the case");
    outcome.and(closed)
}
