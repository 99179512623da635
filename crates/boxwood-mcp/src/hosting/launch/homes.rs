//! Which directories are everything that somebody has.
//!
//! Comes in: the host's list of users. Goes out: where people have their homes. Never here: services,
//! whose homes are mostly the one directory that they work on.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::paths::real;

const USERS: &str = "/etc/passwd";
/// Below are services, on every distribution of today.
const FIRST_PERSON: u32 = 1000;
/// `nobody`, which lives nowhere.
const NOBODY: u32 = 65534;

/// As the kernel calls them. None where the list cannot be read: the usual places are known anyway.
pub(super) fn of_people() -> Vec<PathBuf> {
    let users = fs::read_to_string(USERS).unwrap_or_default();
    // Whose process this is, is also who owns it there.
    let own = fs::metadata("/proc/self").map(|this| this.uid()).ok();
    homes(&users, own)
}

fn homes(users: &str, own: Option<u32>) -> Vec<PathBuf> {
    let home = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let uid: u32 = fields.next()?.parse().ok()?;
        let home = Path::new(fields.nth(2)?);
        let is_person = uid >= FIRST_PERSON && uid != NOBODY;
        let counts = (is_person || own == Some(uid)) && home.is_absolute();
        let home = counts.then(|| real(home))?;
        home.parent().is_some().then_some(home)
    };
    users.lines().filter_map(home).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_the_daemons_own_user_have_homes_and_services_have_none() {
        let users = "root:x:0:0:root:/no/root:/bin/sh\n\
             www:x:33:33:www:/no/www:/usr/sbin/nologin\n\
             boxwood:x:900:900::/no/boxwood:/usr/sbin/nologin\n\
             me:x:1000:1000:Me,,,:/no/dept/me:/bin/sh\n\
             rootless:x:1001:1001::/:/bin/sh\n\
             nobody:x:65534:65534:nobody:/no/where:/usr/sbin/nologin\n\
             broken:x\n\nodd:x:many:1:::\n";
        let found = |own| homes(users, own);
        assert_eq!(found(None), [Path::new("/no/dept/me")]);
        assert_eq!(
            found(Some(900)),
            [Path::new("/no/boxwood"), Path::new("/no/dept/me")]
        );
    }

    #[test]
    fn a_home_is_known_by_where_it_really_is() {
        let directory = tempfile::tempdir().expect("there is room");
        let root = real(directory.path());
        fs::create_dir_all(root.join("var/home/me")).expect("it is ours");
        std::os::unix::fs::symlink(root.join("var/home"), root.join("home")).expect("it is new");
        let users = format!(
            "me:x:1000:1000::{}:/bin/sh\n",
            root.join("home/me").display()
        );
        assert_eq!(homes(&users, None), [root.join("var/home/me")]);
    }
}
