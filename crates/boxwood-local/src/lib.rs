//! The daemon's side of a box on this machine whose first process is `boxwood-init`.
//!
//! Comes in: an init that somebody started (a fork of the spawner, a container engine, a jail) and its
//! channel. Goes out: a [`LocalBox`], which is all a backend has to hand on. Never here: how the
//! namespaces came to be; that is what backends differ in.
#![forbid(unsafe_code)]

mod apart;
mod areas;
mod begin;
mod busy;
mod cgroup;
mod door;
mod environment;
mod file_tools;
mod files;
mod findings;
mod framed;
mod host;
mod idmap;
mod images;
mod instance;
mod keeping;
mod label;
mod link;
mod live_mount;
mod local_box;
mod mapping;
mod meeting;
mod mount_plan;
mod names;
mod namespace;
mod net;
mod open_files;
mod pipe;
mod process;
mod record;
mod remains;
mod reunion;
mod settings;
mod settle;
mod spawner;
mod streams;
mod terminal;
mod watched;
mod way_out;

pub use apart::{adopt_apart, start_apart};
pub use areas::{Areas, watched};
pub use begin::{Begun, begin, begin_to_last, furnish, plan};
pub use busy::{Busy, Pulse, Work};
pub use cgroup::{Cgroups, Group, PROCESSES_OF_OURS};
pub use environment::environment;
pub use findings::{host_findings, look_inside};
pub use host::LocalHost;
pub use idmap::shifted;
pub use images::{ImageLease, ImageStore};
pub use instance::is_nobody_elses;
pub use label::{
    Lack, check_required, host_lacks, label, local_capabilities, observed_lacks, own_kernel_lacks,
};
pub use link::Link;
pub use live_mount::Doors;
pub use local_box::LocalBox;
pub use mapping::{BoxIds, IdsRecord, Mapping};
pub use meeting::{Caller, Left, Meeting};
pub use mount_plan::{mount_plan, same_path};
pub use names::next_name;
pub use namespace::is_shared;
pub use net::{NetError, NetworkSettings, WaysOut, caution};
pub use remains::{Remains, Shell};
pub use reunion::{Reunion, TakenOver};
pub use settings::{DEFAULT_GRACE, Kind, Settings};
pub use spawner::{Born, into_io, program};
pub use watched::watch;
pub use way_out::attach;

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
