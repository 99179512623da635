//! Measures what may have grown too much, and stops who made it so.
//!
//! Comes in: a directory that may hold too much, or a host with too little room. Goes out: boxes whose
//! programs are ended, with the reason. Never here: the end of a session. Its files are there, and so is
//! whoever may remove some.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use boxwood_api::SessionId;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::place::{NEVER, Place};
use super::restless::Restless;
use super::rule::Look;
use super::system::{Member, System};
use super::walk::WalkError;
use crate::activity::lock;
use crate::freeze::Held;
use crate::leash::kill_later;
use crate::session::Session;

/// A box that does not stand still by then is measured as it runs: it may be in the middle of a write that
/// nothing but its end interrupts.
const HOLD_WAIT: Duration = Duration::from_millis(2);
/// The longest that a box is held, however large its workspace is.
const HOLD_AT_MOST: Duration = Duration::from_secs(10);

/// How long those who do not are watched without a break.
const INSIST: Duration = Duration::from_millis(5);

/// Who wrote more than this lately is a writer.
const WRITER_BYTES: u64 = 1024 * 1024;
const LATELY: Duration = Duration::from_secs(10);

/// Measures, and stops those who are over. While it is close, boxes stand still for it.
///
/// Until `quick_by` the first step goes as far as it can without waiting for anybody: boxes are told to
/// stand still, what is looked through soon is looked through, and who is over is stopped.
pub(super) async fn inspect(system: Arc<System>, place: Arc<Place>, why: Look, quick_by: Instant) {
    let _done = EndInspection(&place, why);
    let members = system.members_at(&place);
    let sessions = sessions_of(&members);
    if why != Look::Close {
        let measured = place.measure_at_leisure(&sessions).await;
        return judge(&place, &members, measured.map(|measured| measured.used)).await;
    }
    let Some(held) = begin(&system, &place, &members, &sessions, quick_by).await else {
        return;
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

/// Lets boxes stand still. `None` where that is over already: enough is known of who is over.
async fn begin<'a>(
    system: &Arc<System>,
    place: &Arc<Place>,
    members: &[Member],
    sessions: &'a [Arc<Session>],
    quick_by: Instant,
) -> Option<Vec<Held<'a>>> {
    let most = members.iter().filter_map(|member| member.limit).max();
    let most = most.filter(|_| system.at_hand);
    // Telling boxes to stand still may wait for whoever moves processes between cgroups; killing does not.
    let is_small = lock(&place.account).is_soon_walked();
    let small = most.filter(|_| is_small);
    if let Some(used) = small.and_then(|limit| place.exceeds(limit, quick_by)) {
        judge(place, members, Ok(used)).await;
        return None;
    }
    let mut holding = std::pin::pin!(hold(sessions));
    let mut told = poll_fn(|context| Poll::Ready(holding.as_mut().poll(context))).await;
    expect_stillness(system, place, members);
    let used = most.and_then(|limit| place.exceeds(limit, quick_by));
    if let Some(used) = used {
        judge(place, members, Ok(used)).await;
    }
    // Whoever sleeps now may not wake up in time, on a machine that is busy with what these write.
    let enough = quick_by + INSIST;
    let stand = |told: &Poll<Vec<Held<'_>>>| matches!(told, Poll::Ready(held) if held.iter().all(|held| !held.is_late()));
    while used.is_none() && !stand(&told) && Instant::now() < enough {
        stop_restless(Arc::clone(system), Arc::clone(place)).await;
        if told.is_pending() {
            told = poll_fn(|context| Poll::Ready(holding.as_mut().poll(context))).await;
        }
    }
    let held = match told {
        Poll::Ready(held) => held,
        Poll::Pending => holding.await,
    };
    if used.is_some() {
        release(held).await;
        return None;
    }
    let late = held.iter().filter(|held| held.is_late());
    let late: Vec<&SessionId> = late.map(Held::session).collect();
    place.came_to_rest(|session| !late.contains(&&session.id));
    Some(held)
}

/// What programs write from now on is in calls that had begun before.
fn expect_stillness(system: &System, place: &Place, members: &[Member]) {
    let Some(free) = system.free_at_hand() else {
        return;
    };
    let restless = members.iter().filter_map(|member| {
        let limit = member.limit?;
        Some(Restless::new(&member.session, limit, free))
    });
    place.expect_stillness(restless.collect());
    // With the first look all others are compared.
    place.writing_on(free);
}

/// Ends the programs of those who write on although they were told to stand still.
pub(super) async fn stop_restless(system: Arc<System>, place: Arc<Place>) {
    let Some(free) = system.free_at_hand() else {
        return;
    };
    for session in place.writing_on(free) {
        tracing::info!(
            session = %session.id,
            "a box writes on while it is to stand still: its programs are ended"
        );
        stop(&session).await;
    }
}

async fn judge(place: &Place, members: &[Member], used: Result<u64, WalkError>) {
    let over = |limit: u64| match &used {
        Ok(used) => *used > limit,
        Err(WalkError::TooDeep | WalkError::TooMany | WalkError::Closed) => true,
        Err(WalkError::Cancelled | WalkError::Io(_)) => false,
    };
    if let Err(error) = &used
        && !matches!(error, WalkError::Cancelled)
    {
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

/// Ends everything in the box, and says why to whoever asks.
async fn stop(session: &Session) {
    if session.is_let_go() {
        // The next daemon's, who looks for itself.
        return;
    }
    let _stopping = session.stops.begin();
    if let Err(error) = session.sandbox.kill_all().await {
        tracing::warn!(session = %session.id, %error, "not everything in a box was ended at once");
        for exec in session.execs.all_running() {
            kill_later(Arc::clone(&exec.control));
        }
        let managed = session.processes.all();
        for process in managed.iter().filter(|process| process.is_running()) {
            kill_later(process.control());
        }
    }
}

struct EndInspection<'a>(&'a Place, Look);

impl Drop for EndInspection<'_> {
    fn drop(&mut self) {
        self.0.end_inspection(self.1);
    }
}
