//! Measures what may have grown too much, and stops who made it so.
//!
//! Comes in: a directory that may hold too much, or a host with too little room. Goes out: boxes whose
//! programs are ended, with the reason. Never here: the end of a session. Its files are there, and so is
//! whoever may remove some.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use tokio::time::timeout;

use super::place::{NEVER, Place};
use super::rule::Look;
use super::system::{Member, System};
use super::walk::WalkError;
use crate::activity::lock;
use crate::freeze::Held;
use crate::leash::kill_later;
use crate::session::Session;

/// A box that does not stand still by then is measured as it runs.
const HOLD_WAIT: Duration = Duration::from_millis(100);
/// The longest that a box is held, however large its workspace is.
const HOLD_AT_MOST: Duration = Duration::from_secs(10);

/// Who wrote more than this lately is a writer.
const WRITER_BYTES: u64 = 1024 * 1024;
const LATELY: Duration = Duration::from_secs(10);

/// Measures, and stops those who are over. While it is close, boxes stand still for it.
pub(super) async fn inspect(system: Arc<System>, place: Arc<Place>, why: Look) {
    let _done = EndInspection(&place);
    let members = system.members_at(&place);
    let sessions = sessions_of(&members);
    let held = match why {
        Look::Close => hold(&sessions).await,
        Look::Due | Look::Again(_) => Vec::new(),
    };
    let mut measuring = std::pin::pin!(place.measure(&sessions, NEVER));
    let judged = |used| judge(&place, &members, used);
    let Ok(measured) = timeout(HOLD_AT_MOST, measuring.as_mut()).await else {
        release(held).await;
        return judged(measuring.await.map(|measured| measured.used)).await;
    };
    judged(measured.map(|measured| measured.used)).await;
    release(held).await;
}

async fn judge(place: &Place, members: &[Member], used: Result<u64, WalkError>) {
    let over = |limit: u64| match &used {
        Ok(used) => *used > limit,
        Err(WalkError::TooDeep | WalkError::TooMany | WalkError::Closed) => true,
        Err(WalkError::Cancelled | WalkError::Io(_)) => false,
    };
    if let Err(error) = &used {
        tracing::warn!(%error, "a workspace cannot be measured");
    }
    for member in members {
        if let Some(limit) = member.limit.filter(|limit| over(*limit)) {
            let used = used.as_ref().ok();
            tracing::info!(
                session = %member.session.id, used, limit,
                "a box is over its quota: its programs are ended"
            );
            stop(&member.session).await;
        }
    }
    if used.is_ok() {
        lock(&place.account).judge();
    }
}

/// Ends the programs of every box that wrote lately. One at a time for each file system.
pub(super) async fn protect_host(system: Arc<System>) {
    let _done = EndProtection(&system);
    let members = system.members();
    let sessions = sessions_of(&members);
    let held = hold(&sessions).await;
    let since = SystemTime::now() - LATELY;
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = i64::try_from(since.as_secs()).unwrap_or(NEVER);
    let mut places: Vec<&Arc<Place>> = Vec::new();
    for member in &members {
        if !places.iter().any(|known| Arc::ptr_eq(known, &member.place)) {
            places.push(&member.place);
        }
    }
    let judging = places.into_iter().map(|place| async {
        let here = members.iter().filter(|it| Arc::ptr_eq(&it.place, place));
        let here: Vec<Member> = here.cloned().collect();
        let wrote = match place.measure(&sessions_of(&here), since).await {
            Ok(measured) => measured.recent > WRITER_BYTES,
            Err(WalkError::TooDeep | WalkError::TooMany | WalkError::Closed) => true,
            Err(WalkError::Cancelled | WalkError::Io(_)) => false,
        };
        for member in here.iter().filter(|_| wrote) {
            tracing::warn!(
                session = %member.session.id, floor = system.floor,
                "the host has too little room left: the programs of a box that writes are ended"
            );
            stop(&member.session).await;
        }
    });
    // Whoever cannot be judged by then is let go, and looked at again if it gets worse.
    let _ = timeout(HOLD_AT_MOST, join_all(judging)).await;
    release(held).await;
}

struct EndProtection<'a>(&'a System);

impl Drop for EndProtection<'_> {
    fn drop(&mut self) {
        self.0.end_protection();
    }
}

fn sessions_of(members: &[Member]) -> Vec<Arc<Session>> {
    let mut sessions: Vec<Arc<Session>> = Vec::new();
    for member in members {
        if !sessions
            .iter()
            .any(|known| Arc::ptr_eq(known, &member.session))
        {
            sessions.push(Arc::clone(&member.session));
        }
    }
    sessions
}

/// Lets the boxes stand still, as far as they can.
async fn hold(sessions: &[Arc<Session>]) -> Vec<Held<'_>> {
    let holding = sessions
        .iter()
        .map(|session| async { session.activity.frost.hold(HOLD_WAIT).await });
    join_all(holding).await.into_iter().flatten().collect()
}

async fn release(held: Vec<Held<'_>>) {
    join_all(held.into_iter().map(Held::release)).await;
}

/// Ends everything in the box, and says why to whoever asks. What is said first: an end may be seen
/// before this call is over.
async fn stop(session: &Session) {
    if session.is_let_go() {
        // The next daemon's, who looks for itself.
        return;
    }
    let running = session.execs.all_running();
    for exec in &running {
        exec.mark_over_quota();
    }
    let managed = session.processes.all();
    for process in &managed {
        process.mark_over_quota();
    }
    if let Err(error) = session.sandbox.kill_all().await {
        tracing::warn!(session = %session.id, %error, "not everything in a box was ended at once");
        for exec in running {
            kill_later(Arc::clone(&exec.control));
        }
        for process in managed.iter().filter(|process| process.is_running()) {
            kill_later(process.control());
        }
    }
}

struct EndInspection<'a>(&'a Place);

impl Drop for EndInspection<'_> {
    fn drop(&mut self) {
        self.0.end_inspection();
    }
}
