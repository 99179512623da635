//! A box's way out, of whichever kind this host has.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;

use boxwood_backend::StartError;
use boxwood_init::{InsideInterface, InsideNetwork};
use boxwood_sys::nftables::InsideRules;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::chain;
use crate::host::LocalHost;
use crate::net::{LeaseRecord, NetError, NetLease, PastaLease, PastaRecord, WaysOut};
use crate::remains::Remains;

/// Let go of when the box goes.
pub(crate) enum WayOut {
    Veth(NetLease),
    Pasta(PastaLease),
}

impl WayOut {
    pub(crate) fn release(self) -> io::Result<()> {
        match self {
            Self::Veth(lease) => lease.release().map_err(io::Error::other),
            Self::Pasta(lease) => lease.release().map_err(io::Error::other),
        }
    }

    pub(crate) fn record(&self) -> WayOutRecord {
        match self {
            Self::Veth(lease) => WayOutRecord::Veth(lease.record()),
            Self::Pasta(lease) => WayOutRecord::Pasta(lease.record()),
        }
    }

    /// The box outlives this daemon, and this with it.
    pub(crate) fn let_go(self) {
        match self {
            Self::Veth(lease) => lease.leave(),
            Self::Pasta(lease) => lease.leave(),
        }
    }

    /// That of a box called `name` which an earlier daemon made. Blocks.
    pub(crate) fn claim(
        host: &LocalHost,
        name: &str,
        record: &WayOutRecord,
    ) -> Result<Self, NetError> {
        match (&host.ways_out, record) {
            (WaysOut::Veth(networks), WayOutRecord::Veth(record)) => {
                networks.claim(record).map(Self::Veth)
            }
            (WaysOut::Pasta(pasta), WayOutRecord::Pasta(Some(record))) => {
                pasta.claim(name, *record).map(Self::Pasta)
            }
            _ => Err(NetError::PastaGone),
        }
    }
}

/// A way out as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WayOutRecord {
    Veth(LeaseRecord),
    /// `None`: it had ended by then.
    Pasta(Option<PastaRecord>),
}

const DOCTOR: &str = "run `boxwood doctor`, or ask for a box without network";

/// Gives the box a way out and tells what init has to configure.
pub async fn attach(host: &Arc<LocalHost>, remains: &Remains) -> Result<InsideNetwork, StartError> {
    let (worker, name) = (Arc::clone(host), remains.name.clone());
    let init = remains.init;
    let attached = tokio::task::spawn_blocking(move || attach_blocking(&worker, init, &name));
    let failed = |why: String, hint: &str| StartError::Unavailable {
        why: format!("the box's network could not be set up: {why}"),
        hint: hint.to_owned(),
    };
    let (inside, way_out) = attached
        .await
        .map_err(|error| failed(error.to_string(), DOCTOR))?
        .map_err(|error| {
            // Of a box that died on its way nothing can be said about the others.
            if !remains.is_alive() {
                let step = "set up its network".to_owned();
                let source = io::Error::other(error);
                return StartError::Step { step, source };
            }
            let hint = error.hint().unwrap_or(DOCTOR).to_owned();
            failed(chain(&error), &hint)
        })?;
    remains.set_way_out(way_out);
    Ok(inside)
}

fn attach_blocking(
    host: &LocalHost,
    init: Pid,
    name: &str,
) -> Result<(InsideNetwork, WayOut), NetError> {
    match &host.ways_out {
        WaysOut::Veth(networks) => {
            let path = format!("/proc/{}/ns/net", init.as_raw_nonzero());
            let netns = File::open(&path).map_err(|source| NetError::Namespace { path, source })?;
            let (lease, rules) = networks.attach_namespace(netns.as_fd())?;
            let inside = lease.inside();
            let plan = InsideNetwork {
                interface: Some(InsideInterface {
                    name: inside.interface.clone(),
                    address: inside.address,
                    prefix: inside.prefix,
                    gateway: inside.gateway,
                    mtu: inside.mtu,
                }),
                dns: inside.dns.clone(),
                denied: denied(&rules),
            };
            Ok((plan, WayOut::Veth(lease)))
        }
        WaysOut::Pasta(pasta) => {
            let (lease, inside) = pasta.attach(name, init.as_raw_nonzero().get())?;
            let plan = InsideNetwork {
                interface: None,
                dns: inside.dns.clone(),
                denied: denied(&inside.rules),
            };
            Ok((plan, WayOut::Pasta(lease)))
        }
    }
}

fn denied(rules: &InsideRules) -> Vec<(Ipv4Addr, u8)> {
    let networks = rules.denied.iter();
    networks
        .map(|network| (network.address(), network.prefix()))
        .collect()
}
