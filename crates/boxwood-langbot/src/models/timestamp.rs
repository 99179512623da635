//! Timestamps in all formats that pydantic reads.
//!
//! Parsed with `speedate`, which pydantic uses too, so that the error messages are the same.

use jiff::Timestamp;
use jiff::tz::Offset;
use serde_json::Value;
use speedate::{
    Date, DateTime, DateTimeConfig, MicrosecondsPrecisionOverflowBehavior, ParseError, Time,
    TimeConfig, TimestampUnit,
};
use strum::EnumMessage as _;

use super::errors::Invalid;

/// A timestamp with a time zone.
pub(super) fn aware(input: &Value) -> Result<Timestamp, Invalid> {
    let read = datetime(input)?;
    if read.date.year == 0 {
        return Err(unreadable("year 0 is out of range"));
    }
    if read.time.tz_offset.is_none() {
        return Err(Invalid::value("expires_at must include a timezone"));
    }
    let nanoseconds = i32::try_from(read.time.microsecond * 1000).unwrap_or_default();
    Timestamp::new(read.timestamp_tz(), nanoseconds)
        .ok()
        // Python's `datetime` starts with year 1, in UTC too.
        .filter(|timestamp| Offset::UTC.to_datetime(*timestamp).year() > 0)
        .ok_or_else(|| Invalid::value("expires_at is out of range"))
}

fn datetime(input: &Value) -> Result<DateTime, Invalid> {
    let config = DateTimeConfig {
        time_config: TimeConfig {
            microseconds_precision_overflow_behavior:
                MicrosecondsPrecisionOverflowBehavior::Truncate,
            unix_timestamp_offset: Some(0),
        },
        timestamp_unit: TimestampUnit::Infer,
    };
    let wrong_type = || Invalid::new("datetime_type", "Input should be a valid datetime");
    match input {
        Value::String(text) => match DateTime::parse_bytes_with_config(text.as_bytes(), &config) {
            Ok(read) => Ok(read),
            Err(_) => midnight(text),
        },
        Value::Number(number) => match number.as_i64() {
            Some(seconds) => DateTime::from_timestamp_with_config(seconds, 0, &config),
            None => DateTime::from_float_with_config(number.as_f64().unwrap_or(f64::NAN), &config),
        }
        .map_err(|error| unreadable(documentation(&error))),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(wrong_type()),
    }
}

/// A date without a time is its midnight, without a time zone.
fn midnight(text: &str) -> Result<DateTime, Invalid> {
    let date = Date::parse_bytes(text.as_bytes()).map_err(|error| {
        Invalid::new(
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

fn unreadable(reason: &str) -> Invalid {
    Invalid::new(
        "datetime_parsing",
        format!("Input should be a valid datetime, {reason}"),
    )
}

fn documentation(error: &ParseError) -> &'static str {
    error.get_documentation().unwrap_or_default()
}
