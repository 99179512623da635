//! The table that `bench` prints.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde::Serialize;

use super::sample::Samples;
use crate::bench::{backends, hosting, langbot, load};

/// One comparison and its result.
#[derive(Serialize)]
pub(in super::super) struct Row {
    pub(in super::super) what: &'static str,
    pub(in super::super) against: &'static str,
    /// The largest ratio that counts as kept; `None` if the row has no target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) at_most: Option<f64>,
    pub(in super::super) result: Measured,
    /// What a reader must know to judge the number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in super::super) note: String,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Measured {
    Times {
        ours: Spread,
        theirs: Spread,
        ratio: f64,
        ratio_p95: f64,
    },
    Kibibytes {
        ours: f64,
        theirs: f64,
        ratio: f64,
    },
    /// Something that either works or does not.
    Answer {
        yes: bool,
    },
    /// The comparison could not be made.
    Unknown {
        why: String,
    },
}

#[derive(Serialize)]
pub(in super::super) struct Spread {
    pub(super) n: usize,
    pub(super) median_us: f64,
    pub(super) p95_us: f64,
}

impl From<&Samples> for Spread {
    fn from(samples: &Samples) -> Self {
        Self {
            n: samples.count(),
            median_us: micros(samples.median()),
            p95_us: micros(samples.p95()),
        }
    }
}

impl Measured {
    pub(in super::super) fn times(ours: &Samples, theirs: &Samples) -> Self {
        let (ours, theirs) = (Spread::from(ours), Spread::from(theirs));
        Self::Times {
            ratio: ours.median_us / theirs.median_us,
            ratio_p95: ours.p95_us / theirs.p95_us,
            ours,
            theirs,
        }
    }

    pub(in super::super) fn kibibytes(ours: f64, theirs: f64) -> Self {
        Self::Kibibytes {
            ours,
            theirs,
            ratio: ours / theirs,
        }
    }

    pub(in super::super) fn unknown(error: &anyhow::Error) -> Self {
        Self::Unknown {
            why: format!("{error:#}"),
        }
    }
}

/// Properties of the machine that affect the numbers. No names and no paths.
#[derive(Serialize)]
pub(in super::super) struct Machine {
    kernel: String,
    cpus: usize,
    cpu_model: String,
    memory_mib: u64,
    distribution: String,
    user: &'static str,
    load_before: String,
    load_after: String,
}

impl Machine {
    pub(in super::super) fn read_current() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|rest| {
                    rest.trim_start_matches([' ', '\t', ':', '='])
                        .trim()
                        .to_owned()
                })
                .unwrap_or_default()
        };
        let memory_kib: u64 = field(&read("/proc/meminfo"), "MemTotal")
            .trim_end_matches(" kB")
            .parse()
            .unwrap_or_default();
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            cpu_model: field(&read("/proc/cpuinfo"), "model name"),
            memory_mib: memory_kib / 1024,
            distribution: field(&read("/etc/os-release"), "PRETTY_NAME").replace('"', ""),
            user: if crate::run::is_root() {
                "root"
            } else {
                "ordinary user"
            },
            load_before: load(),
            load_after: String::new(),
        }
    }

    pub(in super::super) fn record_load_after(&mut self) {
        self.load_after = load();
    }
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg")
        .unwrap_or_default()
        .split(' ')
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

#[derive(Serialize)]
pub(in super::super) struct Report {
    pub(in super::super) machine: Machine,
    /// Of the whole run.
    pub(in super::super) duration_sec: u64,
    pub(in super::super) rows: Vec<Row>,
    /// The same box on every engine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) backends: Vec<Row>,
    /// One box while others load the daemon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) load: Vec<Row>,
    /// MCP servers behind the gateway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) hosting: Vec<Row>,
    /// What LangBot's own client measured, separate because its times include the client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) langbot: Vec<Row>,
}

impl Report {
    pub(in super::super) fn to_markdown(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "Kernel {}, {}, {} CPUs ({}), {} MiB, as {}; load {} before, {} after; the run took {}.\n\n",
            machine.kernel,
            machine.distribution,
            machine.cpus,
            machine.cpu_model,
            machine.memory_mib,
            machine.user,
            machine.load_before,
            machine.load_after,
            duration_text(self.duration_sec),
        );
        if !self.rows.is_empty() {
            push_rows(&mut text, &self.rows);
        }
        for (title, about, rows) in [
            ("On every backend", backends::ABOUT, &self.backends),
            ("Under load", load::ABOUT, &self.load),
            ("MCP servers", hosting::ABOUT, &self.hosting),
            (
                "Through LangBot's own client",
                langbot::ABOUT,
                &self.langbot,
            ),
        ] {
            if rows.is_empty() {
                continue;
            }
            if !text.ends_with("\n\n") {
                text.push('\n');
            }
            let _ = writeln!(text, "## {title}\n\n{about}\n");
            push_rows(&mut text, rows);
        }
        text
    }
}

fn push_rows(text: &mut String, rows: &[Row]) {
    text.push_str("| what | against | ours | theirs | ratio | at most | |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for row in rows {
        let (ours, theirs, ratio, verdict) = row.cells();
        let at_most = if matches!(row.result, Measured::Answer { .. }) {
            "yes".to_owned()
        } else {
            row.at_most.map_or_else(|| "–".to_owned(), ratio_text)
        };
        let _ = writeln!(
            text,
            "| {} | {} | {ours} | {theirs} | {ratio} | {at_most} | {verdict} |",
            row.what, row.against,
        );
    }
    if rows.iter().any(|row| !row.note.is_empty()) {
        text.push('\n');
    }
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let _ = writeln!(
            text,
            "- *{}*, against {}: {}",
            row.what, row.against, row.note
        );
    }
}

impl Row {
    fn cells(&self) -> (String, String, String, &'static str) {
        let judge = |ratio: f64| match self.at_most {
            None => "",
            Some(at_most) if ratio <= at_most => "kept",
            Some(_) => "**missed**",
        };
        match &self.result {
            Measured::Times {
                ours,
                theirs,
                ratio,
                ratio_p95,
            } => (
                spread_text(ours),
                spread_text(theirs),
                format!(
                    "**{}** (p95 {})",
                    ratio_text(*ratio),
                    ratio_text(*ratio_p95)
                ),
                judge(*ratio),
            ),
            Measured::Kibibytes {
                ours,
                theirs,
                ratio,
            } => (
                format!("{ours:.0} KiB"),
                format!("{theirs:.0} KiB"),
                format!("**{}**", ratio_text(*ratio)),
                judge(*ratio),
            ),
            Measured::Answer { yes: true } => ("yes".into(), "–".into(), "–".into(), "kept"),
            Measured::Answer { yes: false } => ("no".into(), "–".into(), "–".into(), "**missed**"),
            Measured::Unknown { why } => (
                "–".into(),
                "–".into(),
                format!("not measured: {}", why.replace('\n', " ").replace('|', "/")),
                "**unknown**",
            ),
        }
    }
}

/// `1.31 ×`, or `1/52` where we are far below.
fn ratio_text(ratio: f64) -> String {
    if ratio > 0.0 && ratio < 0.21 {
        let times = 1.0 / ratio;
        let digits = usize::from(times < 10.0);
        format!("1/{times:.digits$}")
    } else {
        format!("{ratio:.2} ×")
    }
}

fn spread_text(spread: &Spread) -> String {
    format!(
        "{} / {} (n={})",
        time_text(spread.median_us),
        time_text(spread.p95_us),
        spread.n
    )
}

pub(in super::super) fn time_text(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.0} µs")
    } else {
        format!("{:.2} ms", us / 1000.0)
    }
}

/// `42 s` or `3 min 7 s`.
pub(in super::super) fn duration_text(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

pub(in super::super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_far_below_one_is_a_fraction() {
        assert_eq!(ratio_text(1.314), "1.31 ×");
        assert_eq!(ratio_text(0.5), "0.50 ×");
        assert_eq!(ratio_text(0.2), "1/5.0");
        assert_eq!(ratio_text(0.025), "1/40");
    }

    #[test]
    fn only_a_row_with_a_promise_is_judged() {
        let verdict = |at_most| {
            let row = Row {
                what: "x",
                against: "y",
                at_most,
                result: Measured::kibibytes(2.0, 1.0),
                note: String::new(),
            };
            row.cells().3
        };
        assert_eq!(verdict(None), "");
        assert_eq!(verdict(Some(2.0)), "kept");
        assert_eq!(verdict(Some(1.9)), "**missed**");
    }

    #[test]
    fn a_duration_has_minutes_from_sixty_seconds_on() {
        assert_eq!(duration_text(59), "59 s");
        assert_eq!(duration_text(60), "1 min 0 s");
        assert_eq!(duration_text(787), "13 min 7 s");
    }

    #[test]
    fn one_document_has_every_table_and_marks_what_is_missed() {
        let rows = |what, at_most| {
            vec![Row {
                what,
                against: "y",
                at_most: Some(at_most),
                result: Measured::kibibytes(2.0, 1.0),
                note: String::new(),
            }]
        };
        let report = Report {
            machine: Machine::read_current(),
            duration_sec: 61,
            rows: rows("first", 2.0),
            backends: rows("backends", 1.9),
            load: rows("load", 2.0),
            hosting: rows("hosting", 2.0),
            langbot: rows("langbot", 2.0),
        };
        let text = report.to_markdown();
        let seen: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("## ") || line.starts_with("Kernel"))
            .map(|line| line.rsplit("; ").next().unwrap_or_default())
            .collect();
        assert_eq!(
            seen,
            [
                "the run took 1 min 1 s.",
                "## On every backend",
                "## Under load",
                "## MCP servers",
                "## Through LangBot's own client"
            ]
        );
        for what in ["first", "backends", "load", "hosting", "langbot"] {
            assert!(
                text.contains(&format!("\n| {what} | y | 2 KiB | 1 KiB |")),
                "{text}"
            );
        }
        assert!(text.contains("| 1.90 × | **missed** |"), "{text}");
    }

    #[test]
    fn a_row_that_could_not_be_measured_says_why() {
        let row = Row {
            what: "x",
            against: "y",
            at_most: Some(1.0),
            result: Measured::unknown(&anyhow::anyhow!("no engine")),
            note: String::new(),
        };
        assert_eq!(row.cells().2, "not measured: no engine");
        assert_eq!(row.cells().3, "**unknown**");
    }
}
