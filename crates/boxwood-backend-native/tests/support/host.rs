//! What native boxes are expected to have on this machine.

use boxwood_backend::suite::machine::{has_landlock, installed, opens_tun, privilege};
use boxwood_backend::suite::{Host, Privilege};

pub(super) fn describe() -> Host {
    let privilege = privilege();
    Host {
        absent: super::absent::on(privilege, has_landlock()),
        network: privilege == Privilege::Root || (installed("pasta") && opens_tun()),
        // Delegated groups of an ordinary user are not used.
        counters: privilege == Privilege::Root,
        ..Host::new(privilege)
    }
}
