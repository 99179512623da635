//! Twenty thousand mutated archives and front matters from a fixed seed: nothing panics, nothing
//! hangs, and nothing outside the store is touched.

#[path = "it/fixture.rs"]
#[expect(dead_code, reason = "the other tests use the rest of it")]
mod fixture;
#[path = "it/zip_maker.rs"]
mod zip_maker;

use std::time::{Duration, Instant};

use boxwood_skills::{Limits, SkillPatch, ZipRequest, ZipSelection};
use fixture::{Fixture, skill_md};
use zip_maker::{Raw, archive, deflated_zeroes, stored};

const ROUNDS: usize = 10_000;
/// Many times what it takes on a slow machine; a hang is longer.
const PATIENCE: Duration = Duration::from_mins(5);

/// xorshift64*: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).expect("small")
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, words: &[&[u8]]) {
    for _ in 0..=random.below(6) {
        if bytes.is_empty() {
            bytes.push(b'x');
        }
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = *random.pick(&[0, 1, 0x2e, 0x2f, 0x5c, 0x7f, 0x80, 0xff]),
            2 => {
                let end = (at + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => {
                let end = (at + random.below(32)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            4 | 5 => {
                let word = random.pick(words).to_vec();
                bytes.splice(at..at, word);
            }
            6 => {
                let word = *random.pick(words);
                let end = (at + word.len()).min(bytes.len());
                bytes.splice(at..end, word.to_vec());
            }
            _ => {
                // A whole field, as sizes and offsets are.
                let value = random
                    .pick(&[0_u32, 1, 0xffff, 0x7fff_ffff, 0xffff_ffff])
                    .to_le_bytes();
                let end = (at + 4).min(bytes.len());
                bytes.splice(at..end, value);
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let link = Raw {
        mode: 0o120_777,
        ..stored("ln", "/etc")
    };
    vec![
        archive(&[
            stored("SKILL.md", skill_md("one")),
            stored("a/b.txt", "text"),
        ]),
        archive(&[
            stored("pack/", ""),
            stored("pack/SKILL.md", skill_md("two")),
            deflated_zeroes("pack/zeroes", 5000),
        ]),
        archive(&[
            stored("x/a/SKILL.md", skill_md("ay")),
            stored("x/b/skill.md", skill_md("bee")),
        ]),
        archive(&[stored("SKILL.md", skill_md("three")), link]),
        archive(&[
            deflated_zeroes("SKILL.md", 300),
            stored("../up", "x"),
            stored("/abs", "y"),
        ]),
    ]
}

/// A well-formed archive of badly meant members: these get past the reader and meet our own rules.
fn assembled(random: &mut Random) -> Vec<u8> {
    const PARTS: [&str; 14] = [
        "a", "b", "A", "..", ".", "", "SKILL.md", "C:", "x\\y", "\0", "\u{e9}", "e\u{301}",
        "skill.md", "/",
    ];
    const MODES: [u32; 8] = [
        0o100_644, 0o100_644, 0o100_755, 0, 0o104_755, 0o120_777, 0o040_755, 0o010_644,
    ];
    let mut members = vec![zip_maker::skill("made")];
    for number in 0..random.below(4) {
        let mut name = format!("f{number}");
        for _ in 0..random.below(3) {
            name = match random.below(3) {
                0 => format!("{name}/{}", random.pick(&PARTS)),
                1 => format!("{}/{name}", random.pick(&PARTS)),
                _ => name,
            };
        }
        members.push(Raw {
            mode: *random.pick(&MODES),
            flags: *random.pick(&[0, 0x800, 0x800, 0x800, 0x801]),
            system: *random.pick(&[0, 3, 3, 19]),
            shares: (random.below(20) == 0).then_some(0),
            ..stored(name, "contents")
        });
    }
    archive(&members)
}

#[test]
fn mutated_archives_stay_in_the_store() {
    const WORDS: [&[u8]; 10] = [
        b"../",
        b"/",
        b"\\",
        b"\0",
        b"PK\x01\x02",
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"PK\x06\x06",
        b"SKILL.md",
        b"\x01\x00\x10\x00",
    ];
    let limits = Limits {
        max_unpacked_bytes: 1 << 20,
        ..Limits::default()
    };
    let fixture = Fixture::with(limits);
    let around = fixture.around();
    let mut random = Random(0x0b0c_5eed);
    let seeds = seeds();
    let started = Instant::now();
    let mut installed = 0;
    for round in 0..ROUNDS {
        let bytes = if round % 2 == 0 {
            assembled(&mut random)
        } else {
            let mut bytes = random.pick(&seeds).clone();
            mutate(&mut random, &mut bytes, &WORDS);
            bytes
        };
        let request = ZipRequest {
            filename: random
                .pick(&["skill.zip", "../../x.zip", "..", "a b.zip"])
                .to_string(),
            source_subdir: random
                .pick(&["", "", "", "", "", "", "", "a", "../..", "x"])
                .to_string(),
            target_suffix: random
                .pick(&["upload", "upload", "upload", "", "", "../x"])
                .to_string(),
        };
        let preview = fixture.store.preview_zip(&bytes, &request);
        // Every accepted archive is installed, and one in ten of the others is tried as well.
        if preview.is_ok() || round % 10 == 0 {
            let selection = ZipSelection {
                source_paths: preview
                    .iter()
                    .flatten()
                    .map(|planned| planned.source_path.clone())
                    .collect(),
                ..ZipSelection::default()
            };
            let outcome = fixture.store.install_zip(&bytes, &request, &selection);
            for skill in outcome.into_iter().flatten() {
                installed += 1;
                assert!(skill.package_root.starts_with(fixture.root()));
                fixture.store.delete(&skill.name).expect("deleted");
            }
        }
        if round % 500 == 0 {
            assert_eq!(fixture.around(), around, "round {round}");
            assert!(started.elapsed() < PATIENCE, "round {round}");
        }
    }
    assert!(
        installed > 50,
        "only {installed} survived: the mutator is too wild"
    );
    assert_eq!(fixture.around(), around);
    assert!(fixture.inside().is_empty(), "{:?}", fixture.inside());
}

#[test]
fn mutated_front_matters_are_read_or_refused() {
    const SEEDS: [&str; 5] = [
        "---\nname: one\ndescription: >-\n  folded\n  text\nlicense: MIT # c\n---\n\nbody\n",
        "---\nname: &a one\nb: *a\nc: {d: [1, 2.5, ~], e: 'f'}\n<<: {display_name: g}\n---\nx\n",
        "---\n{name: flow, description: \"q\\u00e9\\n\", t: 2026-11-16T10:11:12Z}\n---\n",
        "---\n# c\n? name\n: explicit\n- x\n...\n---\n---\nname: y\n---\n",
        "---\nmetadata:\n  a: b\n  l:\n  - x\n  - y: |\n      z\nname: on\n---\nb\n",
    ];
    const WORDS: [&[u8]; 20] = [
        b"---\n",
        b"...",
        b"\n",
        b": ",
        b"- ",
        b"? ",
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!str ",
        b"!x ",
        b"|\n",
        b">-\n",
        b"[",
        b"{",
        b"'",
        b"\"",
        b" #",
        b"\r\n",
        b"\xef\xbb\xbf",
    ];
    let fixture = Fixture::new();
    let around = fixture.around();
    let mut random = Random(0x5eed_f00d);
    let started = Instant::now();
    let mut read = 0;
    let mut rewritten = 0;
    for round in 0..ROUNDS {
        let mut bytes = random.pick(&SEEDS).as_bytes().to_vec();
        mutate(&mut random, &mut bytes, &WORDS);
        fixture.put("one/SKILL.md", &bytes);
        let listed = fixture.store.list().expect("listed");
        let Some(skill) = listed.first() else {
            let problems = fixture.store.problems().expect("problems");
            assert_eq!(problems.len(), 1, "{:?}", String::from_utf8_lossy(&bytes));
            continue;
        };
        read += 1;
        // One in ten is also rewritten: the new words are there and the body is the same.
        if round % 10 == 0 {
            let patch = SkillPatch {
                description: Some("new: words # here".to_owned()),
                ..SkillPatch::default()
            };
            let updated = fixture.store.update(&skill.name, &patch);
            if let Ok(updated) = updated {
                rewritten += 1;
                assert_eq!(updated.description, "new: words # here");
                assert_eq!(updated.name, skill.name);
                assert_eq!(updated.display_name, skill.display_name);
                assert_eq!(
                    updated.instructions,
                    skill.instructions.trim_start_matches('\n')
                );
            }
        }
        assert!(started.elapsed() < PATIENCE, "round {round}");
    }
    assert!(
        read > 500 && rewritten > 50,
        "{read} read, {rewritten} rewritten"
    );
    assert_eq!(fixture.around(), around);
}
