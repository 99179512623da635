//! The program that runs in every session, and a check of its output.
//!
//! It prints its pid once, counts forever, and echoes every line of its input in order. Lost, repeated or changed bytes and
//! a restart of the program are visible in its output.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

/// Perl, because it is part of every Debian, small, and does not buffer `sysread` and `syswrite`.
const PROGRAM: &str = r#"
my ($tick, $line, $stdin) = (0, "", "");
vec($stdin, 0, 1) = 1;
sub out {
    my ($text, $done) = (shift, 0);
    while ($done < length $text) {
        my $wrote = syswrite(STDOUT, $text, length($text) - $done, $done);
        $done += $wrote if defined $wrote;
    }
}
open(my $stat, "<", "/proc/self/stat") or die;
my @fields = split(" ", (<$stat> =~ /\) (.*)/)[0]);
out("begin $$ $fields[19]\n");
for (;;) {
    my $ready = $stdin;
    if (select($ready, undef, undef, 0.1) > 0) {
        my $got = sysread(STDIN, $line, 65536, length $line);
        exit 3 if defined $got && $got == 0;
        while ($line =~ s/^(.*)\n//) { out("echo $1\n"); }
    } else {
        out("tick " . $tick++ . "\n");
    }
}
"#;

pub(crate) fn spec() -> Value {
    json!({ "command": "perl", "args": ["-e", PROGRAM] })
}

/// Line number `number` of the input, of some length.
pub(crate) fn input_line(number: u64) -> String {
    let padding = usize::try_from(number * 37 % 400).expect("small");
    format!("{number} {}\n", "x".repeat(padding))
}

/// The process, as the program reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Inside its box.
    pub(crate) pid: u32,
    /// From `/proc/PID/stat`, in clock ticks.
    pub(crate) start_time: u64,
}

/// Checks the output.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    rest: Vec<u8>,
    pub(crate) identity: Option<Identity>,
    pub(crate) ticks: u64,
    pub(crate) echoes: u64,
}

impl Reader {
    pub(crate) fn read(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = std::str::from_utf8(&line[..end]).context("the output is not UTF-8")?;
            self.line(line)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let so_far = format!("after {} ticks and {} echoes", self.ticks, self.echoes);
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "begin" => {
                ensure!(
                    self.identity.is_none(),
                    "the program was restarted {so_far}: {line:?}"
                );
                let (pid, start_time) = rest.split_once(' ').context("no pid and start time")?;
                self.identity = Some(Identity {
                    pid: pid.parse()?,
                    start_time: start_time.parse()?,
                });
            }
            _ if self.identity.is_none() => bail!("the first line is lost: {line:?}"),
            "tick" => {
                ensure!(
                    rest == self.ticks.to_string(),
                    "{so_far} the program printed {line:?}"
                );
                self.ticks += 1;
            }
            "echo" => {
                let expected = input_line(self.echoes);
                ensure!(
                    rest == expected.trim_end_matches('\n'),
                    "{so_far} the program printed {line:?}"
                );
                self.echoes += 1;
            }
            _ => bail!("{so_far} the program printed {line:?}"),
        }
        Ok(())
    }
}
