//! Formats timestamps as LangBot Box does.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Equivalent of `datetime.fromtimestamp(float, utc).isoformat()`: microseconds if they are not zero, and
/// `+00:00`.
///
/// LangBot Box converts through a double, which has fewer digits than the file system. The same rounding is
/// applied here, so that both show the same time for a file.
pub fn python_isoformat(time: Timestamp) -> String {
    let mut second = time.as_second();
    #[expect(
        clippy::cast_precision_loss,
        reason = "the loss is the point: it is the one a double makes"
    )]
    let float = second as f64 + f64::from(time.subsec_nanosecond()) * 1e-9;
    let fraction = float - float.floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction times a million lies between 0 and 1,000,000"
    )]
    let mut micros = (fraction * 1e6).round_ties_even() as u32;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a timestamp's seconds are far inside an i64"
    )]
    {
        second = float.floor() as i64;
    }
    if micros >= 1_000_000 {
        micros -= 1_000_000;
        second += 1;
    }
    let whole = Timestamp::from_second(second).unwrap_or(time);
    let civil = TimeZone::UTC.to_datetime(whole);
    let base = civil.strftime("%Y-%m-%dT%H:%M:%S");
    if micros == 0 {
        format!("{base}+00:00")
    } else {
        format!("{base}.{micros:06}+00:00")
    }
}

/// Clamps a time that is outside of the calendar range.
pub(crate) fn from_stat(seconds: i64, nanoseconds: u64) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
    Timestamp::new(seconds, nanoseconds).unwrap_or(if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}
