//! Notifications of server processes that several clients share: subscriptions, log levels and delivery.

pub(crate) mod hub;
pub(crate) mod log_level;
pub(crate) mod membership;
pub(crate) mod preferences;
pub(crate) mod subscriptions;
