//! Requests of LangBot's clients, recorded and mutated.

mod compare;
mod frames;
mod http_suite;
mod mutator;
mod recording;
mod replay;
mod stdio;
