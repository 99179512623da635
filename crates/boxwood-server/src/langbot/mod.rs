//! LangBot's dialects: action RPC over WebSocket and stdio.
//!
//! Comes in: messages of LangBot's published clients, of June's generation and of today's. Goes out:
//! the answers those clients expect. Never here: sessions, skills, policy; this is a translation onto
//! a few of their calls, and nothing further inside knows who spoke.

mod answers;
mod assembly;
mod calls;
mod config;
mod conversation;
mod data;
mod era;
mod fault;
mod fit;
mod june;
mod lines;
mod pydantic;
mod python;
mod relay;
mod reply;
mod scanner;
mod speaker;
mod state;
pub(crate) mod stdio;
mod today;
mod transfers;
pub(crate) mod workspace;
pub(crate) mod ws;

pub(crate) use era::Era;
pub(crate) use fault::Fault;
pub(crate) use relay::{asks_for_mcp, refused};
pub(crate) use speaker::Speaker;
pub(crate) use state::LangBot;
pub use today::InstanceError as LangBotError;
pub(crate) use today::{Standing, readiness as today_readiness, relay as today_relay};
