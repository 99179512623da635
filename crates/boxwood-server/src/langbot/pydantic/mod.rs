//! Reads what the clients send the way their own models do.
