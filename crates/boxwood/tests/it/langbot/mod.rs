//! LangBot's clients, as recorded and as nobody would write them.

mod compare;
mod frames;
mod mutator;
mod recording;
mod replay;
mod stdio;
