//! Sizes: `512m`, `2g`, `512MiB`. A plain number counts bytes, as with Docker.

use std::str::FromStr;

/// An amount of memory or disk in the unit the API counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mebibytes(pub(crate) u64);

impl FromStr for Mebibytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = || format!("`{text}` is not a size; write `512m` or `2g`");
        let trimmed = text.trim().to_ascii_lowercase();
        let digits = trimmed
            .find(|char: char| !char.is_ascii_digit() && char != '.')
            .unwrap_or(trimmed.len());
        let number: f64 = trimmed[..digits].parse().map_err(|_| help())?;
        let bytes_per_unit: f64 = match &trimmed[digits..] {
            "" | "b" => 1.0,
            "k" | "kb" | "kib" => 1024.0,
            "m" | "mb" | "mib" => 1_048_576.0,
            "g" | "gb" | "gib" => 1_073_741_824.0,
            "t" | "tb" | "tib" => 1_099_511_627_776.0,
            _ => return Err(help()),
        };
        let mebibytes = (number * bytes_per_unit / 1_048_576.0).ceil();
        // `512` is in bytes, and almost certainly a mistake for `512m`.
        if mebibytes < 1.0 || number * bytes_per_unit < 1_048_576.0 {
            return Err(format!("`{text}` is less than 1 MiB; write `512m` or `2g`"));
        }
        if mebibytes > 1_073_741_824.0 {
            return Err(format!("`{text}` is more than 1 PiB"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, positive and below 2^30 by the checks above"
        )]
        Ok(Self(mebibytes as u64))
    }
}

/// `17 B`, `1.4 KiB`, `230 MiB`.
pub(crate) fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut integer, mut rest, mut unit) = (bytes / 1024, bytes % 1024, 0);
    while integer >= 1024 && unit + 1 < UNITS.len() {
        rest = integer % 1024;
        integer /= 1024;
        unit += 1;
    }
    if integer < 10 {
        format!("{integer}.{} {}", rest * 10 / 1024, UNITS[unit])
    } else {
        format!("{integer} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(
            text.parse::<Mebibytes>().ok().map(|m| m.0),
            expected,
            "{text:?}"
        );
    }

    #[test]
    fn sizes_are_read_the_way_docker_reads_them() {
        check("512m", Some(512));
        check("2g", Some(2048));
        check("2GiB", Some(2048));
        check("1.5g", Some(1536));
        check("536870912", Some(512));
        check("2048k", Some(2));
        check("1m", Some(1));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["", "m", "-1m", "512", "0m", "1x", "9999999999t", "1 2m"] {
            check(text, None);
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(size_text(17), "17 B");
        assert_eq!(size_text(1434), "1.4 KiB");
        assert_eq!(size_text(230 << 20), "230 MiB");
        assert_eq!(size_text(u64::MAX), "16383 PiB");
    }
}
