//! What annotations and ConfigMap keys say, for a location, a host, a backend: the messages of
//! `proto/firth/config/v1/policy.proto` themselves, since nothing would be gained by a copy of each field.
//!
//! What follows from their fields (`since`, `overlay`, `unknown_value`) is generated, see `shared/build/policies.rs`.
//! A policy that came over the wire has no enum number without a meaning; all else is judged where it is compiled.

pub use crate::proto::config::{
    Affinity, AffinityMode, BackendPolicy, BackendProtocol, BackendTls, BasicAuth, Buffers, Canary,
    ClientCertificates, ClientVerification, ConnectionHeader, ExternalAuth, Header, HeaderChange,
    HeaderChangeList, HeaderList, HeaderOperation, HostPolicy, LoadBalance, LocationPolicy, NumberList,
    Replacement, RequestMetrics, SameSite, Sampler, Shortcut, ShortcutBlock, ShortcutComparison,
    ShortcutPath, ShortcutTest, Shortcuts, StatusList, TextList,
};
