//! Durations: `30`, `30s`, `1m30s`, `2h`, `250ms`.

use std::time::Duration;

/// A year. Sums of times with it do not overflow.
const MAX_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let help = || format!("`{text}` is not a duration; write `30s`, `2m`, `1h30m`");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(help());
    }
    if let Ok(seconds) = rest.parse::<u64>() {
        return bounded(text, Duration::from_secs(seconds).as_secs_f64());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|char: char| !char.is_ascii_digit() && char != '.')
            .ok_or_else(help)?;
        let number: f64 = rest[..digits].parse().map_err(|_| help())?;
        rest = &rest[digits..];
        let letters = rest
            .find(|char: char| !char.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => 0.001,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(help()),
        };
        seconds += number * unit;
        rest = &rest[letters..];
    }
    bounded(text, seconds)
}

fn bounded(text: &str, seconds: f64) -> Result<Duration, String> {
    if (0.001..=MAX_SECONDS).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("`{text}` is not between a millisecond and a year"))
    }
}

/// Short and rounded, for columns: `850ms`, `4s`, `3m`, `2h`, `5d`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected_ms: Option<u128>) {
        assert_eq!(
            duration(text).ok().map(|d| d.as_millis()),
            expected_ms,
            "{text:?}"
        );
    }

    #[test]
    fn durations_are_read_the_way_people_write_them() {
        check("30", Some(30_000));
        check("30s", Some(30_000));
        check("2m", Some(120_000));
        check("1h30m", Some(5_400_000));
        check("1.5s", Some(1_500));
        check("250ms", Some(250));
        check(" 1d ", Some(86_400_000));
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in [
            "", "0", "0s", "0.5ms", "-1s", "s", "1x", "1m30", "1..2s", "inf", "nan", "1e9s",
            "99999d", "１s",
        ] {
            check(text, None);
        }
    }
}
