//! Points in time, written in all the ways that pydantic reads.
//!
//! The reading itself is `speedate`, which is pydantic's own: its texts end up in ours.

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::Offset;
use speedate::{
    Date, DateTime, DateTimeConfig, MicrosecondsPrecisionOverflowBehavior, ParseError, Time,
    TimeConfig, TimestampUnit,
};
use strum::EnumMessage as _;

use super::errors::Wrong;
use super::input::Input;

/// A point in time that says where on earth its clock stands.
pub(super) fn aware(input: &Input<'_>) -> Result<Timestamp, Wrong> {
    let read = datetime(input)?;
    if read.date.year == 0 {
        return Err(unreadable("year 0 is out of range"));
    }
    let Some(offset_seconds) = read.time.tz_offset else {
        return Err(Wrong::value("expires_at must include a timezone"));
    };
    timestamp(&read, offset_seconds).ok_or_else(|| Wrong::value("expires_at is out of range"))
}

fn datetime(input: &Input<'_>) -> Result<DateTime, Wrong> {
    let config = DateTimeConfig {
        time_config: TimeConfig {
            microseconds_precision_overflow_behavior:
                MicrosecondsPrecisionOverflowBehavior::Truncate,
            unix_timestamp_offset: Some(0),
        },
        timestamp_unit: TimestampUnit::Infer,
    };
    let wrong_type = || Wrong::new("datetime_type", "Input should be a valid datetime");
    let told = |error: ParseError| unreadable(documentation(&error));
    match input {
        Input::Text(text) => match DateTime::parse_bytes_with_config(text.as_bytes(), &config) {
            Ok(read) => Ok(read),
            Err(_) => midnight(text),
        },
        Input::Int(number) => match i64::try_from(*number) {
            Ok(seconds) => DateTime::from_timestamp_with_config(seconds, 0, &config).map_err(told),
            #[expect(
                clippy::cast_precision_loss,
                reason = "as Python's own conversion does"
            )]
            Err(_) => DateTime::from_float_with_config(*number as f64, &config).map_err(told),
        },
        Input::Float(number) => DateTime::from_float_with_config(*number, &config).map_err(told),
        Input::Null | Input::Bool(_) | Input::List(_) | Input::Dict(_) => Err(wrong_type()),
    }
}

/// A date alone is its first moment, on a clock that stands nowhere.
fn midnight(text: &str) -> Result<DateTime, Wrong> {
    let date = Date::parse_bytes(text.as_bytes()).map_err(|error| {
        Wrong::new(
            "datetime_from_date_parsing",
            format!(
                "Input should be a valid datetime or date, {}",
                documentation(&error)
            ),
        )
    })?;
    let time = Time {
        hour: 0,
        minute: 0,
        second: 0,
        microsecond: 0,
        tz_offset: None,
    };
    Ok(DateTime { date, time })
}

fn unreadable(why: &str) -> Wrong {
    Wrong::new(
        "datetime_parsing",
        format!("Input should be a valid datetime, {why}"),
    )
}

fn documentation(error: &ParseError) -> &'static str {
    error.get_documentation().unwrap_or_default()
}

fn timestamp(read: &DateTime, offset_seconds: i32) -> Option<Timestamp> {
    let date = civil::Date::new(
        i16::try_from(read.date.year).ok()?,
        i8::try_from(read.date.month).ok()?,
        i8::try_from(read.date.day).ok()?,
    )
    .ok()?;
    let time = civil::Time::new(
        i8::try_from(read.time.hour).ok()?,
        i8::try_from(read.time.minute).ok()?,
        i8::try_from(read.time.second).ok()?,
        i32::try_from(read.time.microsecond.checked_mul(1000)?).ok()?,
    )
    .ok()?;
    let offset = Offset::from_seconds(offset_seconds).ok()?;
    let timestamp = offset.to_timestamp(date.to_datetime(time)).ok()?;
    // Python has no years before the first, not even for an hour at Greenwich.
    (Offset::UTC.to_datetime(timestamp).year() > 0).then_some(timestamp)
}
