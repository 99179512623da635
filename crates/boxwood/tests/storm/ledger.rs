//! The ledger is removed or damaged between two daemons. The running boxes are adopted nevertheless.

use std::fs;
use std::path::Path;

use anyhow::ensure;

use crate::instance::Instance;
use crate::leftovers::survive;
use crate::random::{Random, kills};

#[test]
fn a_ledger_lost_or_damaged_between_kills_leaves_nothing_behind_and_loses_nothing() {
    let instance = Instance::new();
    survive("ledger", &instance, async |storm, mut daemon| {
        let mut damaged = 0;
        for _ in 0..kills(40) {
            storm.kill(daemon).await?;
            damaged += u64::from(damage(instance.state(), &mut storm.random)?);
            daemon = storm.next().await?;
        }
        let set_aside = fs::read_dir(instance.state())?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().contains(".damaged-"));
        let set_aside: Vec<_> = set_aside.map(|entry| entry.path()).collect();
        ensure!(
            damaged == 0 || !set_aside.is_empty(),
            "damaged ledgers are set aside, not removed"
        );
        // They are kept for the operator and are no leak.
        for file in set_aside {
            fs::remove_file(file)?;
        }
        Ok(daemon)
    });
}

/// Returns true if the file is certainly not a valid ledger afterwards.
fn damage(state: &Path, random: &mut Random) -> anyhow::Result<bool> {
    let ledger = state.join("ledger.db");
    let journals = ["ledger.db-wal", "ledger.db-shm"].map(|name| state.join(name));
    let lose = |path: &Path| match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    };
    match random.within(0, 5) {
        0 => {
            journals
                .iter()
                .chain([&ledger])
                .try_for_each(|it| lose(it))?;
            Ok(false)
        }
        1 => {
            let garbage: Vec<u8> = (0..20_000_u32).map(|at| (at * 7 % 251) as u8).collect();
            journals.iter().try_for_each(|it| lose(it))?;
            fs::write(&ledger, garbage)?;
            Ok(true)
        }
        // Truncated, unless the write-ahead log contains all pages.
        2 => {
            let length = fs::metadata(&ledger)?.len();
            let file = fs::File::options().write(true).open(&ledger)?;
            file.set_len(length / 2)?;
            Ok(false)
        }
        // Without the write-ahead log.
        3 => {
            journals.iter().try_for_each(|it| lose(it))?;
            Ok(false)
        }
        _ => Ok(false),
    }
}
