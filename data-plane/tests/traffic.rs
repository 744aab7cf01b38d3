//! Requests through a real worker, over real sockets, to small scripted backends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests, their harness included")]

#[path = "traffic/accelerated.rs"]
mod accelerated;
#[path = "traffic/access.rs"]
mod access;
#[path = "traffic/affinity.rs"]
mod affinity;
#[path = "traffic/arrivals.rs"]
mod arrivals;
#[path = "traffic/auth.rs"]
mod auth;
#[path = "traffic/authority.rs"]
mod authority;
#[path = "traffic/backend_tls.rs"]
mod backend_tls;
#[path = "traffic/balancing.rs"]
mod balancing;
#[path = "traffic/blocks.rs"]
mod blocks;
#[path = "traffic/bodies.rs"]
mod bodies;
#[path = "traffic/calls.rs"]
mod calls;
#[path = "traffic/client_certs.rs"]
mod client_certs;
#[path = "traffic/clients.rs"]
mod clients;
#[path = "traffic/compression.rs"]
mod compression;
#[path = "traffic/connections.rs"]
mod connections;
#[path = "traffic/cors.rs"]
mod cors;
#[path = "traffic/cut_responses.rs"]
mod cut_responses;
#[path = "traffic/datagrams.rs"]
mod datagrams;
#[path = "traffic/digests.rs"]
mod digests;
#[path = "traffic/early_answers.rs"]
mod early_answers;
#[path = "traffic/ejection.rs"]
mod ejection;
#[path = "traffic/endings.rs"]
mod endings;
#[path = "traffic/error_places.rs"]
mod error_places;
#[path = "traffic/errors.rs"]
mod errors;
#[path = "traffic/expansion_limits.rs"]
mod expansion_limits;
#[path = "traffic/external_names.rs"]
mod external_names;
#[path = "traffic/fastcgi.rs"]
mod fastcgi;
#[path = "traffic/fleet_pages.rs"]
mod fleet_pages;
#[path = "traffic/fleet_snippets.rs"]
mod fleet_snippets;
#[path = "traffic/goodbyes.rs"]
mod goodbyes;
#[path = "traffic/grpc.rs"]
mod grpc;
#[path = "traffic/harness.rs"]
mod harness;
#[path = "traffic/header_scopes.rs"]
mod header_scopes;
#[path = "traffic/held_back.rs"]
mod held_back;
#[path = "traffic/hostile.rs"]
mod hostile;
#[path = "traffic/http2.rs"]
mod http2;
#[path = "traffic/large_bodies.rs"]
mod large_bodies;
#[path = "traffic/limit_rate.rs"]
mod limit_rate;
#[path = "traffic/limits.rs"]
mod limits;
#[path = "traffic/log.rs"]
mod log;
#[path = "traffic/malformed.rs"]
mod malformed;
#[path = "traffic/metrics.rs"]
mod metrics;
#[path = "traffic/mirrors.rs"]
mod mirrors;
#[path = "traffic/names.rs"]
mod names;
#[path = "traffic/own_headers.rs"]
mod own_headers;
#[path = "traffic/parked.rs"]
mod parked;
#[path = "traffic/passed_bodies.rs"]
mod passed_bodies;
#[path = "traffic/piped_bodies.rs"]
mod piped_bodies;
#[path = "traffic/read_ahead.rs"]
mod read_ahead;
#[path = "traffic/response_headers.rs"]
mod response_headers;
#[path = "traffic/response_rewrites.rs"]
mod response_rewrites;
#[path = "traffic/retiring.rs"]
mod retiring;
#[path = "traffic/retries.rs"]
mod retries;
#[path = "traffic/rewrites.rs"]
mod rewrites;
#[path = "traffic/routes.rs"]
mod routes;
#[path = "traffic/set_variables.rs"]
mod set_variables;
#[path = "traffic/shortcuts.rs"]
mod shortcuts;
#[path = "traffic/shown_pages.rs"]
mod shown_pages;
#[path = "traffic/sizes.rs"]
mod sizes;
#[path = "traffic/small_frames.rs"]
mod small_frames;
#[path = "traffic/snippet_rewrites.rs"]
mod snippet_rewrites;
#[path = "traffic/streams.rs"]
mod streams;
#[path = "traffic/targets.rs"]
mod targets;
#[path = "traffic/tickets.rs"]
mod tickets;
#[path = "traffic/timeouts.rs"]
mod timeouts;
#[path = "traffic/tracing.rs"]
mod tracing;
#[path = "traffic/tunnels.rs"]
mod tunnels;
#[path = "traffic/tunnels_behind_bodies.rs"]
mod tunnels_behind_bodies;
#[path = "traffic/untaken_responses.rs"]
mod untaken_responses;
#[path = "traffic/upload_windows.rs"]
mod upload_windows;
#[path = "traffic/upstream_keepalive.rs"]
mod upstream_keepalive;
#[path = "traffic/verified_backends.rs"]
mod verified_backends;
#[path = "traffic/versions.rs"]
mod versions;
#[path = "traffic/zones.rs"]
mod zones;
