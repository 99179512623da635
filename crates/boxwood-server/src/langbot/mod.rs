//! LangBot's dialects: action RPC over WebSocket and stdio.
//!
//! Comes in: messages of LangBot's published clients, of June's generation and of today's. Goes out:
//! the answers those clients expect. Never here: sessions, skills, policy; this is a translation onto
//! a few of their calls, and nothing further inside knows who spoke.

mod era;
mod fault;
mod pydantic;

pub(crate) use era::Era;
pub(crate) use fault::Fault;
