//! The outbound network of a box: veth and nftables as root, `pasta` otherwise.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use boxwood_api::with_causes;
use boxwood_backend::StartError;
use boxwood_init::InsideNetwork;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::{LeaseRecord, NetError, NetLease, Networks, Pasta, PastaLease, PastaRecord};
use crate::host::settings::Settings;
use crate::host::{LocalHost, instance};
use crate::sandbox::resources::BoxResources;

pub enum OutboundNetwork {
    Veth(Arc<Networks>),
    Pasta(Pasta),
}

impl OutboundNetwork {
    /// Does not touch networks of an earlier daemon of this instance: its boxes may be running.
    pub(crate) fn new(instance: &str, settings: &Settings, root: bool) -> Self {
        if root {
            return Self::Veth(Networks::new(instance, settings.network.clone()));
        }
        let parent = settings.run_dir.join("pasta");
        remove_stale_commands(&parent);
        Self::Pasta(Pasta::new(&parent.join(instance), settings.network.clone()))
    }

    /// Removes leftovers of an earlier daemon that were not claimed. An error is only logged: if it is
    /// permanent, the next box with a network fails with it too.
    pub(crate) fn remove_leftovers(&self, is_wanted: impl Fn(&str) -> bool) {
        let removed = match self {
            Self::Veth(networks) => networks
                .remove_leftovers()
                .map_err(|error| with_causes(&error)),
            Self::Pasta(pasta) => pasta
                .remove_leftovers(is_wanted)
                .map_err(|error| error.to_string()),
        };
        if let Err(error) = removed {
            tracing::warn!(error, "failed to remove leftovers of an earlier network");
        }
    }

    /// Removes what outlives single boxes. Called when no boxes are left.
    pub(crate) fn close(&self) {
        if let Self::Pasta(pasta) = self {
            pasta.remove_directory();
        }
    }
}

/// Boxes of a single command end with it and are never adopted.
fn remove_stale_commands(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_str().is_some_and(instance::is_stale) {
            let _ = boxwood_sys::tree::remove(&entry.path());
        }
    }
}

/// The network of one box; dropping it removes the network.
pub(crate) enum OutboundLease {
    Veth(NetLease),
    Pasta(PastaLease),
}

impl OutboundLease {
    pub(crate) fn release(self) -> io::Result<()> {
        match self {
            Self::Veth(lease) => lease
                .release()
                .map_err(|error| io::Error::other(with_causes(&error))),
            Self::Pasta(lease) => lease.release().map_err(io::Error::other),
        }
    }

    pub(crate) fn record(&self) -> OutboundRecord {
        match self {
            Self::Veth(lease) => OutboundRecord::Veth(lease.record()),
            Self::Pasta(lease) => OutboundRecord::Pasta(lease.record()),
        }
    }

    /// Keeps the network for the next daemon.
    pub(crate) fn detach(self) {
        match self {
            Self::Veth(lease) => lease.detach(),
            Self::Pasta(lease) => lease.detach(),
        }
    }

    /// Claims the network of box `name`, which an earlier daemon created. Blocks.
    pub(crate) fn claim(
        host: &LocalHost,
        name: &str,
        record: &OutboundRecord,
    ) -> Result<Self, NetError> {
        match (&host.outbound, record) {
            (OutboundNetwork::Veth(networks), OutboundRecord::Veth(record)) => {
                networks.claim(record).map(Self::Veth)
            }
            (OutboundNetwork::Pasta(pasta), OutboundRecord::Pasta(Some(record))) => {
                pasta.claim(name, *record).map(Self::Pasta)
            }
            _ => Err(NetError::PastaGone),
        }
    }
}

/// The network of a box in its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OutboundRecord {
    Veth(LeaseRecord),
    /// `None` if `pasta` had exited when the record was written.
    Pasta(Option<PastaRecord>),
}

const DOCTOR: &str = "run `boxwood doctor`, or start the box with `network: off`";

/// Connects the box to the network and returns what init has to configure.
pub async fn attach(
    host: &Arc<LocalHost>,
    resources: &BoxResources,
) -> Result<InsideNetwork, StartError> {
    let (worker, name) = (Arc::clone(host), resources.name.clone());
    let init = resources.init;
    let attached = tokio::task::spawn_blocking(move || attach_blocking(&worker, init, &name));
    let failed = |why: String, hint: &str| StartError::Unavailable {
        why: format!("failed to set up the network of the box: {why}"),
        hint: hint.to_owned(),
    };
    let (inside, outbound) = attached
        .await
        .map_err(|error| failed(error.to_string(), DOCTOR))?
        .map_err(|error| {
            // The error was caused by the death of this box, not by the host's network.
            if !resources.is_alive() {
                let step = "set up the network".to_owned();
                let source = io::Error::other(error);
                return StartError::Step { step, source };
            }
            let hint = error.hint().unwrap_or(DOCTOR).to_owned();
            failed(with_causes(&error), &hint)
        })?;
    resources.set_outbound(outbound);
    Ok(inside)
}

fn attach_blocking(
    host: &LocalHost,
    init: Pid,
    name: &str,
) -> Result<(InsideNetwork, OutboundLease), NetError> {
    match &host.outbound {
        OutboundNetwork::Veth(networks) => {
            let path = format!("/proc/{}/ns/net", init.as_raw_nonzero());
            let netns = File::open(&path).map_err(|source| NetError::Namespace { path, source })?;
            let (lease, inside) = networks.attach_namespace(netns.as_fd())?;
            Ok((inside, OutboundLease::Veth(lease)))
        }
        OutboundNetwork::Pasta(pasta) => {
            let (lease, inside) = pasta.attach(name, init.as_raw_nonzero().get())?;
            Ok((inside, OutboundLease::Pasta(lease)))
        }
    }
}
