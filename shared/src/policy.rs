//! Policies: settings from annotations and ConfigMap keys, for a location, a host, a backend. These are the messages of
//! `proto/firth/config/v1/policy.proto` themselves; a copy of each field would gain nothing.
//!
//! Code derived from their fields (`since`, `overlay`, `unknown_value`) is generated, see `shared/build/policies.rs`. A
//! policy received over the wire has no unknown enum numbers; everything else is checked when it is compiled.

pub use crate::proto::config::{
    Affinity, AffinityMode, BackendPolicy, BackendProtocol, BackendTls, BasicAuth, Buffers, Canary,
    ClientCertificates, ClientVerification, ConnectionHeader, CookieFlags, CookieFlagsList, ErrorAnswer,
    ErrorAnswerList, ErrorPlace, ExternalAuth, Header, HeaderChange, HeaderChangeList, HeaderList,
    HeaderOperation, HostPolicy, LimitList, LoadBalance, LocationPolicy, NumberList, RealIp, Replacement,
    RequestMetrics, SameSite, Sampler, Shortcut, ShortcutBlock, ShortcutComparison, ShortcutPath,
    ShortcutRewrite, ShortcutTest, Shortcuts, SnippetLevel, SnippetValue, SnippetVariable, SnippetVariables,
    StatusList, Substitution, Substitutions, TextList, ToldWithin, ZoneLimit,
};
