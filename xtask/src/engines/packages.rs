//! The Debian packages that the engines come from.

use anyhow::{Context, Result};

use crate::test::needs::{Package, install_packages};

const PACKAGES: &[Package] = &[
    Package {
        name: "docker.io",
        proof: "/usr/sbin/dockerd",
    },
    Package {
        name: "podman",
        proof: "/usr/bin/podman",
    },
    Package {
        name: "runc",
        proof: "/usr/sbin/runc",
    },
    Package {
        name: "runsc",
        proof: "/usr/bin/runsc",
    },
    Package {
        name: "docker-registry",
        proof: "/usr/bin/docker-registry",
    },
    // Podman needs these two for networks of its own; its package only recommends them.
    Package {
        name: "netavark",
        proof: "/usr/lib/podman/netavark",
    },
    Package {
        name: "aardvark-dns",
        proof: "/usr/lib/podman/aardvark-dns",
    },
    Package {
        name: "iptables",
        proof: "/usr/sbin/iptables",
    },
    Package {
        name: "nftables",
        proof: "/usr/sbin/nft",
    },
    Package {
        name: "uidmap",
        proof: "/usr/bin/newuidmap",
    },
    Package {
        name: "debootstrap",
        proof: "/usr/sbin/debootstrap",
    },
    Package {
        name: "busybox-static",
        proof: "/bin/busybox",
    },
    Package {
        name: "util-linux",
        proof: "/usr/bin/setpriv",
    },
];

pub(crate) fn install() -> Result<()> {
    install_packages(PACKAGES).context("the engines could not be installed")
}
