//! The proxy's addresses for traffic.

mod others;

use self::others::OTHERS;
use super::{Listener, Row};

pub(crate) const LISTENER: Listener = Listener {
    heading: "Traffic (data plane, `--http`, `--https`)",
    krate: "data-plane",
    tested_in: &["data-plane", "shared"],
    places: &[
        "access_log.rs",
        "app.rs",
        "app/plan.rs",
        "codec",
        "http",
        "listen.rs",
        "listen/ports.rs",
        "local",
        "metrics/requests.rs",
        "password.rs",
        "rate/connections.rs",
        "rate/requests.rs",
        "rate/tries.rs",
        "staple",
        "table/patterns.rs",
        "table/policy/clients.rs",
        "table/policy/read_ahead.rs",
        "table/proxy_protocol.rs",
        "table/sizes.rs",
        "table/streams.rs",
        "table/ticket_keys.rs",
        "table/timeouts.rs",
        "tls/clients.rs",
        "tls/sessions.rs",
        "tls/tickets.rs",
        "udp.rs",
        "upstream/retry_budget.rs",
        "upstream/call",
        "upstream/dial.rs",
        "upstream/flow.rs",
        "upstream/multiplexed.rs",
        "upstream/payload.rs",
        "upstream/payload/piped.rs",
        "upstream/liveness.rs",
        "upstream/send.rs",
        "upstream/strain.rs",
        "upstream/wire.rs",
        "worker.rs",
        "worker/open.rs",
        "worker/pace.rs",
    ],
    rows: ROWS,
    others: OTHERS,
    other_flags: &["--workers", "--drain-grace", "--drain-deadline"],
};

const ROWS: &[Row] = &[
    Row(
        "client connections in total",
        &["local::budgets::CONNECTIONS"],
        &[
            "clients_leave_descriptors_for_endpoints",
            "a_full_table_lets_the_newest_in_for_the_longest_idle",
            "a_client_with_a_request_does_not_make_room",
            "places_are_those_of_all_workers_together",
        ],
    ),
    Row(
        "file descriptors",
        &["app::plan::DESCRIPTORS"],
        &[
            "clients_leave_descriptors_for_endpoints",
            "endpoints_without_a_descriptor_are_503_and_kept_ones_make_room",
        ],
    ),
    Row(
        "connections to endpoints, of one backend",
        &[
            "local::upstream_shares::OF_ONE",
            "local::upstream_shares::OF_NAMESPACE",
            "local::upstream_shares::MEMORY",
        ],
        &[
            "no_backend_takes_the_last_connections_to_endpoints",
            "no_namespace_takes_the_last_connections_to_endpoints",
            "many_small_backends_have_all_that_one_namespace_may",
            "backends_of_a_namespace_leave_connections_to_other_namespaces",
            "the_smallest_proxy_has_one_connection_to_an_endpoint",
            "a_backend_that_leads_back_leaves_connections_to_others",
            "a_grpc_backend_that_leads_back_leaves_memory_to_others",
            "an_auth_service_that_does_not_respond_leaves_connections_to_others",
            "a_backend_at_its_share_leaves_idle_connections_to_others",
        ],
    ),
    Row(
        "reserved file descriptors",
        &["local::reserve::SPARE", "local::reserve::PART", "upstream::dial::PAUSE"],
        &[
            "reserve_is_short_until_lent_units_return",
            "few_descriptors_have_a_small_reserve_and_a_process_without_one_is_never_short",
            "the_reserve_is_used_first_then_room_is_made_and_waited_for",
        ],
    ),
    Row(
        "connections accepted per turn of the event loop",
        &["worker::pace::MOST", "worker::pace::TURN"],
        &["as_many_are_taken_as_a_short_turn_has_time_for"],
    ),
    Row(
        "failed accept (out of descriptors or memory)",
        &["listen::PAUSE", "worker::WARNINGS"],
        &["only_shortage_pauses", "a_shortage_is_not_told_for_each_accept_that_fails"],
    ),
    Row(
        "idle connections closed at a time to make room",
        &["worker::SHED", "worker::SHED_AT_FULL", "worker::SETTLED"],
        &[
            "the_longest_idle_make_room",
            "connection_between_requests_is_not_shed",
            "where_memory_is_short_the_idle_go_and_bodies_go_to_files",
        ],
    ),
    Row(
        "accept queue (listen backlog)",
        &["listen::BACKLOG"],
        &["connections_are_accepted_only_once_all_sockets_are_open"],
    ),
    Row(
        "TCP keep-alive probe of a client",
        &["listen::KEEP_ALIVE"],
        &["the_queue_is_emptied_and_its_connections_are_kept_alive"],
    ),
    Row(
        "keep-alive probe (HTTP/2 PING) of an endpoint, on a connection shared by gRPC calls",
        &[
            "upstream::liveness::DOUBT_AFTER",
            "upstream::liveness::SILENCE",
            "upstream::liveness::PROBE_TIMEOUT",
            "upstream::liveness::JOINS_WHILE_PROBED",
            "upstream::liveness::PROBES",
            "upstream::liveness::PROBE_INTERVAL",
            "upstream::liveness::USER_TIMEOUT",
        ],
        &[
            "a_call_that_is_given_up_in_silence_is_a_doubt_until_something_comes",
            "unanswered_probe_is_a_dead_peer",
            "silence_is_asked_about_and_calls_join_for_a_moment_yet",
            "connection_is_probed_twice_between_responses_and_then_abandoned",
            "a_connection_that_died_without_a_word_costs_one_call",
            "clients_that_give_up_leave_a_dead_connection_to_itself",
            "an_endpoint_that_is_slow_and_there_is_asked_and_keeps_its_connection",
        ],
    ),
    Row(
        "reads at a time to learn whether an idle connection to an endpoint over TLS is quiet",
        &["upstream::wire::READS"],
        &["an_endpoint_that_goes_on_sending_tickets_is_not_quiet"],
    ),
    Row(
        "cancelled calls on a shared connection",
        &["upstream::strain::RESETS", "upstream::strain::PERIOD"],
        &[
            "a_connection_is_worn_by_a_hundred_resets_in_thirty_seconds",
            "a_connection_of_which_many_calls_were_cancelled_takes_no_more_and_keeps_those_it_has",
        ],
    ),
    Row(
        "send window of a shared connection whose endpoint does not read",
        &["upstream::strain::FRAME", "upstream::strain::STUCK"],
        &["bodies_that_are_not_read_use_a_connection_up", "a_call_that_is_not_read_holds_up_no_other_one"],
    ),
    Row(
        "memory held for clients",
        &[
            "http::conn::session::SMALL",
            "http::pipeline::log::REQUEST",
            "local::quota::STEP",
            "worker::open::CONNECTION",
            "http::peer::SESSION",
            "codec::stream::gathered::USUAL",
            "http::h2::STATE",
        ],
        &[
            "a_connection_takes_memory_and_the_longest_idle_makes_room_for_it",
            "heads_that_do_not_end_make_room_where_memory_is_short",
            "what_comes_of_a_frame_or_of_a_head_is_counted",
            "a_client_that_is_heard_out_holds_no_buffer",
            "a_head_that_is_still_arriving_is_counted",
            "clients_leave_descriptors_for_endpoints",
            "the_new_is_refused_before_the_begun",
            "quota_is_drawn_in_steps_and_returned",
            "without_memory_the_new_is_refused_and_the_rest_goes_on",
            "where_memory_is_short_the_idle_go_and_bodies_go_to_files",
            "untaken_response_is_charged_in_any_framing_and_over_tls",
            "upload_not_read_by_its_endpoint_is_charged",
            "responses_of_calls_that_a_client_of_http1_does_not_read_are_charged",
        ],
    ),
    Row(
        "request head, HTTP/1.1",
        &[
            "codec::guard::start_line",
            "codec::guard::field_line",
            "codec::guard::head",
            "codec::guard::fields",
        ],
        &["heads_have_their_sizes_to_the_byte", "a_refusal_has_nginx_status"],
    ),
    Row(
        "request head, HTTP/1.1, if configured",
        &["table::policy::clients::FIRST", "table::policy::clients::LARGEST"],
        &[
            "a_line_fills_a_buffer_and_nobody_has_more_than_we_can_hold",
            "a_head_may_be_as_long_as_the_fleet_says",
        ],
    ),
    Row(
        "PROXY protocol header",
        &[
            "table::proxy_protocol::HEADER_TIME",
            "codec::proxy_protocol::LINE",
            "codec::proxy_protocol::LONGEST",
        ],
        &[
            "a_header_has_five_seconds_where_nobody_says_how_long",
            "a_line_and_a_header_have_their_sizes_to_the_byte",
            "much_of_it_is_charged_while_it_waits",
            "client_without_proxy_header_is_closed_after_the_timeout",
        ],
    ),
    Row("size of a TLS ClientHello", &["http::conn::hello::HELLO"], &["a_hello_has_its_size"]),
    Row(
        "idle timeout of a TLS passthrough connection",
        &["local::limits::stream_idle"],
        &[
            "every_limit_has_the_default_that_is_documented",
            "passthrough_connection_is_closed_after_the_idle_timeout",
        ],
    ),
    Row(
        "ports of TCP and UDP services",
        &["listen::ports::MOST"],
        &[
            "there_are_so_many_ports_and_no_more",
            "ports_leave_descriptors_for_others",
            "a_port_of_another_is_refused_alone_and_tried_again",
            "a_port_that_was_not_begun_is_tried_again",
        ],
    ),
    Row(
        "TCP or UDP session: idle timeout, endpoints tried, time for that",
        &["table::streams::IDLE", "table::streams::TRIES", "table::streams::WITHIN"],
        &[
            "nothing_said_is_the_original_s_default",
            "a_silent_session_ends",
            "tcp_endpoint_that_refuses_is_skipped",
        ],
    ),
    Row(
        "UDP sessions",
        &[
            "local::limits::udp_sessions",
            "local::budgets::SESSIONS",
            "local::budgets::OF_SESSIONS",
            "table::streams::RESPONSES",
        ],
        &[
            "nothing_said_is_the_original_s_default",
            "clients_leave_descriptors_for_endpoints",
            "the_oldest_session_makes_room",
            "udp_session_beyond_the_limit_ends_the_oldest",
            "a_flood_of_one_port_closes_no_other",
            "a_silent_session_makes_room_by_itself",
        ],
    ),
    Row(
        "UDP datagrams",
        &["udp::DATAGRAM", "udp::ANSWERS"],
        &["datagrams_are_answered", "replies_that_go_on_leave_others_their_turns"],
    ),
    Row(
        "empty lines before a request",
        &["codec::h1::scan::MAX_EMPTY_LINES"],
        &["heads_have_their_sizes_to_the_byte"],
    ),
    Row(
        "read-ahead (pipelining) while an HTTP/1.1 client waits for a response",
        &["codec::stream::AHEAD"],
        &["bytes_after_a_request_are_read_ahead_up_to_a_limit"],
    ),
    Row(
        "options in a Connection header",
        &["codec::head::hop::MAX_OPTIONS"],
        &["heads_have_their_sizes_to_the_byte"],
    ),
    Row(
        "line breaks in a path",
        &["codec::path::reading::BREAKS"],
        &["a_backend_reads_the_route_that_was_chosen"],
    ),
    Row(
        "proxies in a row that are assumed to decode a path and to send it on as it is",
        &["codec::path::reading::DECODERS"],
        &["a_backend_reads_the_route_that_was_chosen"],
    ),
    Row(
        "size of a path in all readings together that backends may apply to it (decoding, parameters, backslashes, dot segments)",
        &["codec::path::reading::AHEAD", "codec::path::reading::TIMES"],
        &["path_with_too_many_readings_is_refused", "reading_costs_so_much_an_octet"],
    ),
    Row(
        "chunked body: chunk-size line, all extensions, all trailers",
        &[
            "codec::h1::chunk::MAX_SIZE_LINE",
            "codec::h1::chunk::MAX_EXTENSIONS",
            "codec::h1::chunk::MAX_TRAILERS",
        ],
        &["chunks_have_their_sizes_to_the_byte"],
    ),
    Row(
        "request header list, HTTP/2",
        &["http::h2::HEADER_LIST", "codec::hpack::block::ENTRY"],
        &["a_header_list_has_32_kibibytes", "hpack_bomb_is_refused_within_the_memory_limit"],
    ),
    Row(
        "request header fields, HTTP/2",
        &["codec::guard::fields"],
        &["a_head_of_http2_has_a_hundred_fields"],
    ),
    Row(
        "request heads without a response yet, per HTTP/2 connection",
        &[
            "http::h2::streams::ORDINARY",
            "http::h2::streams::COPIES",
            "http::h2::streams::HEADS",
            "http::h2::streams::HEADS_A_BYTE",
        ],
        &[
            "ordinary_requests_all_run_and_large_ones_as_they_were_paid",
            "hpack_bomb_is_refused_within_the_memory_limit",
        ],
    ),
    Row(
        "queued request heads, per HTTP/2 connection",
        &[
            "http::h2::streams::QUEUED",
            "http::h2::streams::HEADS_A_BYTE",
            "http::h2::streams::WAITING",
            "codec::hpack::block::ENTRY",
        ],
        &[
            "so_much_waits_and_no_more",
            "fields_that_cost_a_byte_wait_for_what_they_take",
            "a_request_that_waits_for_room_can_be_taken_back",
        ],
    ),
    Row(
        "unread responses in hand, per HTTP/2 connection",
        &[
            "http::h2::streams::UNTAKEN",
            "http::h2::streams::TAKEN_A_BYTE",
            "http::h2::streams::PAUSED",
            "http::h2::streams::AHEAD",
        ],
        &[
            "client_that_took_much_may_have_more_untaken",
            "who_is_paused_keeps_nobody_out",
            "untaken_responses_are_buffered_within_the_limit",
            "untaken_error_pages_are_buffered_within_the_limit",
        ],
    ),
    Row(
        "response data handed to an HTTP/2 connection",
        &["codec::h2::connection::AT_ONCE", "http::h2::streams::GIVEN", "http::h2::streams::HEAD"],
        &[
            "the_time_of_a_response_that_has_arrived_is_its_client_s",
            "response_held_back_by_its_client_is_no_timeout_of_the_endpoint",
            "responses_are_not_read_for_a_client_that_takes_none",
            "room_is_given_in_order_of_arrival",
            "short_response_is_read_while_long_ones_are_held_back",
            "what_an_endpoint_does_not_take_is_held_for_what_it_cost",
            "untaken_responses_are_buffered_within_the_limit",
            "client_that_stops_reading_is_closed",
        ],
    ),
    Row(
        "receive windows for uploads, HTTP/2",
        &["http::h2::STREAM_WINDOW", "http::h2::window::SIZE", "http::h2::window::STEP"],
        &[
            "a_connection_is_told_its_limits_at_first",
            "upload_window_grows_with_unread_bytes_and_shrinks_again",
        ],
    ),
    Row(
        "receive windows for gRPC responses",
        &["upstream::multiplexed::STREAM_WINDOW", "upstream::multiplexed::CONNECTION_WINDOW"],
        &[
            "responses_of_calls_that_are_not_read_are_charged",
            "an_answer_in_bytes_that_is_not_taken_leaves_its_neighbours_alone",
            "windows_open_as_responses_are_read",
        ],
    ),
    Row(
        "calls at a time on a shared connection",
        &["upstream::multiplexed::STREAMS"],
        &["no_more_calls_are_on_a_connection_than_its_endpoint_allows"],
    ),
    Row(
        "request bodies handed to a shared connection",
        &["upstream::flow::GIVEN"],
        &["a_connection_that_is_stuck_or_has_much_is_given_nothing"],
    ),
    Row(
        "request body in its buffer",
        &[
            "table::sizes::buffer",
            "upstream::payload::AT_FIRST",
            "upstream::payload::BATCH",
            "local::spill::PART",
        ],
        &["a_body_is_in_memory_to_the_byte", "a_large_one_stands_in_a_file_and_not_in_memory"],
    ),
    Row(
        "response that is read ahead of its client (`proxy-buffering`)",
        &[
            "table::policy::read_ahead::BUFFER",
            "table::policy::read_ahead::BUFFERS",
            "table::policy::read_ahead::FILE",
            "http::reply::ahead::ROOM",
            "http::reply::ahead::reader::BATCH",
            "local::spill::OF_RESPONSES",
        ],
        &[
            "a_response_is_read_before_anybody_takes_it",
            "what_may_not_be_kept_stays_with_the_backend",
            "without_memory_nothing_is_read_ahead",
        ],
    ),
    Row(
        "request body in memory beyond its buffer",
        &["upstream::payload::ORDINARY", "local::budgets::SPARE"],
        &[
            "a_body_is_in_memory_to_the_byte",
            "memory_stands_in_while_there_is_plenty",
            "where_memory_is_short_the_idle_go_and_bodies_go_to_files",
        ],
    ),
    Row(
        "request bodies in files",
        &["local::spill::TOTAL"],
        &[
            "spill_file_is_read_back_and_leaves_nothing_on_disk",
            "a_body_without_room_is_503_and_harms_nobody_else",
            "values",
        ],
    ),
    Row(
        "request body size",
        &["table::sizes::body"],
        &["too_long_body_is_not_read_further", "a_body_that_is_too_long_is_413_however_it_says_so"],
    ),
    Row(
        "part of a streamed request body (gRPC) kept for a retry",
        &["upstream::call::sending::KEPT", "upstream::call::sending::LITTLE"],
        &[
            "a_streamed_body_that_is_partly_gone_is_never_sent_again",
            "bodies_that_are_kept_until_there_is_a_response_are_charged",
            "a_buffered_body_is_sent_again_however_long_it_is",
        ],
    ),
    Row(
        "response head of an endpoint",
        &["table::sizes::head", "codec::guard::MAX_FIELDS"],
        &["the_head_of_an_answer_fits_the_said_buffer_or_is_502", "unclear_responses_are_refused"],
    ),
    Row(
        "gRPC response head, or trailers",
        &["upstream::multiplexed::LIST", "upstream::multiplexed::BLOCK"],
        &["malformed_responses_end_their_calls", "trailers_that_are_too_long_are_no_end"],
    ),
    Row(
        "interim (1xx) responses before the response",
        &[
            "upstream::send::INTERIM",
            "codec::h2::connection::client::INTERIM",
            "http::pipeline::external::question::INTERIM",
        ],
        &["a_backend_hints_so_often_before_it_answers", "a_server_hints_so_often_before_it_answers"],
    ),
    Row(
        "pipes for long responses (`splice`)",
        &["local::pipes::KEPT", "local::pipes::MOST"],
        &["without_descriptors_for_a_pipe_it_is_read", "one_that_is_not_empty_is_not_kept"],
    ),
    Row(
        "pipes that keep request bodies (`splice`, `tee`)",
        &["local::budgets::BODY_PIPES", "local::pipes::bodies::ROOM", "upstream::payload::piped::PATIENCE"],
        &[
            "there_are_few_and_only_while_descriptors_are_plentiful",
            "without_room_for_a_pipe_it_is_read",
            "body_that_stops_flowing_is_taken_out_of_its_pipe",
        ],
    ),
    Row(
        "own requests to authentication services and mirrors that come back to the proxy",
        &["http::pipeline::loops::MOST"],
        &[
            "an_auth_url_that_leads_to_itself_ends_with_500_after_a_few_requests",
            "a_mirror_that_leads_to_itself_makes_a_few_copies_and_no_more",
        ],
    ),
    Row(
        "mirrored requests in progress",
        &[
            "local::mirror_budget::PART",
            "local::mirror_budget::MOST",
            "local::mirror_budget::DISK",
            "http::pipeline::mirror::PATIENCE",
            "http::pipeline::mirror::LISTENED",
        ],
        &[
            "each_of_the_three_ends_it_and_all_is_given_back",
            "there_is_one_however_few_descriptors_there_are",
            "a_mirror_that_never_answers_holds_up_nobody_and_no_more_than_its_budget",
            "a_mirror_that_never_ends_is_not_listened_to",
        ],
    ),
    Row(
        "HTTP/2 frames without effect: PING, SETTINGS, PRIORITY and WINDOW_UPDATE floods, empty DATA",
        &["codec::h2::frames::IDLE_FRAMES", "codec::h2::frames::PERIOD", "codec::h2::frames::FOR_EACH"],
        &[
            "frames_about_nothing",
            "window_updates_for_a_large_response_are_no_flood",
            "frames_about_nothing_end_the_connection",
        ],
    ),
    Row(
        "concurrent streams per HTTP/2 connection",
        &["http::h2::STREAMS"],
        &["a_connection_has_128_streams_at_once", "a_connection_is_told_its_limits_at_first"],
    ),
    Row(
        "HTTP/2 stream resets (rapid reset)",
        &[
            "codec::h2::frames::STREAMS",
            "codec::h2::frames::PERIOD",
            "codec::h2::frames::PATIENT",
            "codec::h2::frames::ANSWERED",
            "codec::h2::frames::CAUSED",
        ],
        &[
            "more_than_half_of_two_hundred_streams",
            "streams_that_have_waited_may_be_reset",
            "streams_that_were_answered_may_be_reset",
            "resets_of_streams_just_opened_end_the_connection",
            "streams_that_were_reset_for_errors_of_the_client_are_counted",
            "resets_at_once_and_resets_of_ours_end_the_connection",
        ],
    ),
    Row(
        "header fields split over several HTTP/2 frames",
        &["codec::frame::LISTS", "codec::frame::LIST"],
        &["blocks_of_several_frames"],
    ),
    Row(
        "HTTP/2 control frames that a peer does not read; with them heads, and data copied into their buffer",
        &["codec::h2::outgoing::CONTROL", "codec::h2::outgoing::TEXT"],
        &[
            "a_client_that_does_not_read_is_not_read",
            "a_client_that_reads_no_heads_is_not_read",
            "a_list_that_is_too_large_is_answered",
        ],
    ),
    Row(
        "reset HTTP/2 streams for which more may come",
        &["codec::h2::connection::server::FORGOTTEN"],
        &["late_bodies_of_requests_that_were_refused_are_no_errors", "what_ends_a_stream_alone"],
    ),
    Row(
        "requests per connection",
        &["local::limits::requests"],
        &["a_connection_serves_so_many_requests", "a_connection_lasts_as_long_as_the_fleet_says"],
    ),
    Row(
        "HTTP/2 requests after a GOAWAY",
        &["http::h2::AFTER_GOODBYE"],
        &["client_that_ignores_goaway_is_closed_eventually"],
    ),
    Row(
        "header read timeout, from the first byte; time to the first request, from accept; TLS handshake timeout",
        &["local::limits::head", "local::limits::handshake"],
        &[
            "a_client_that_says_nothing_has_ten_seconds",
            "a_head_has_ten_seconds_in_all_however_it_dribbles_in",
            "a_tls_handshake_has_ten_seconds_in_all",
            "a_connection_of_http2_has_the_same_times",
        ],
    ),
    Row(
        "TLS handshakes in progress",
        &["http::conn::hello::HANDSHAKE", "local::handshake_queue::STEPS"],
        &[
            "requests_are_answered_between_the_handshakes_of_a_storm",
            "handshake_memory_is_charged_and_refused_without_budget",
            "handshakes_are_granted_in_order_and_a_dropped_one_passes_its_turn",
        ],
    ),
    Row(
        "request timeout, from the head to the last byte of the response; tunnels are exempt",
        &["local::limits::request"],
        &[
            "every_limit_has_the_default_that_is_documented",
            "a_bound_holds_however_often_a_deadline_is_set",
            "a_whole_request_has_its_time_and_no_more",
        ],
    ),
    Row(
        "keep-alive (idle) timeout of a connection",
        &["local::limits::idle"],
        &["a_connection_may_be_idle_for_75_seconds", "a_connection_of_http2_has_the_same_times"],
    ),
    Row(
        "body read timeout (between two reads)",
        &["table::timeouts::client_body"],
        &[
            "a_body_may_stay_away_for_60_seconds",
            "a_body_that_stays_away_has_the_said_time_however_it_is_sent_on",
        ],
    ),
    Row(
        "response write timeout (between two writes to a client)",
        &["local::limits::client_send"],
        &[
            "a_slow_client_is_waited_for_as_long_as_it_takes_something",
            "a_client_takes_nothing_for_60_seconds",
        ],
    ),
    Row(
        "minimum rate of a request body that is buffered",
        &["local::limits::body_rate", "local::limits::body_grace"],
        &["one_byte_each_25_seconds_is_too_slow_and_240_a_second_are_not"],
    ),
    Row(
        "lingering close: a client still sends its request after the response",
        &["local::limits::discard", "local::limits::discard_pause"],
        &["an_upload_that_nobody_wants_has_30_seconds_and_5_without_a_byte"],
    ),
    Row(
        "grace of a closing connection for what is in progress",
        &["local::limits::linger"],
        &["a_connection_of_http2_has_the_same_times"],
    ),
    Row(
        "endpoint timeouts and attempts",
        &[
            "table::timeouts::connect",
            "table::timeouts::send",
            "table::timeouts::read",
            "table::timeouts::tries",
        ],
        &[
            "every_limit_has_the_default_that_is_documented",
            "an_endpoint_that_says_nothing_has_the_location_s_time",
            "silence_is_504",
            "as_many_tries_as_are_said",
        ],
    ),
    Row(
        "memory of a response being compressed",
        &["http::reply::coded::GZIP", "http::reply::coded::BROTLI", "http::reply::coded::HARD"],
        &["compressing_holds_no_more_than_was_set_apart", "without_room_answers_go_as_they_are"],
    ),
    Row(
        "idle connections to endpoints (keep-alive)",
        &["local::limits::upstream_idle", "local::limits::idle_upstreams"],
        &["every_limit_has_the_default_that_is_documented", "one_budget_for_all_endpoints", "the_old_go"],
    ),
    Row(
        "passive health check: consecutive failures of an endpoint",
        &["local::limits::eject_after"],
        &[
            "every_limit_has_the_default_that_is_documented",
            "refusing_endpoint_is_ejected_until_its_first_response",
            "half_of_them_are_left_alone_at_most",
        ],
    ),
    Row(
        "retry budget: retries of requests that had reached an endpoint",
        &[
            "local::limits::retry_budget",
            "upstream::retry_budget::A_SECOND",
            "upstream::retry_budget::RESERVE",
        ],
        &[
            "retries_of_few_requests_are_all_allowed",
            "retries_are_limited_to_a_percentage_of_many_requests",
            "requests_that_fail_everywhere_are_tried_again_within_a_budget",
        ],
    ),
    Row(
        "log lines about `auth-url` and `mirror-target` addresses that are not allowed, and about unresponsive backends",
        &["local::log_limiter::INTERVAL", "local::log_limiter::MOST"],
        &["each_owner_is_logged_once_per_interval"],
    ),
    Row(
        "certificates with OCSP stapling",
        &["staple::ledger::KNOWN", "app::SHOWN", "staple::ledger::BYTES"],
        &[
            "so_many_are_asked_at_once_and_so_much_is_held",
            "namespace_with_most_ocsp_responses_makes_room_for_others",
        ],
    ),
    Row(
        "text expanded from variables per request",
        &["http::pipeline::variables::USUAL"],
        &["expanded_headers_of_a_location_are_limited", "expanded_body_of_a_snippet_response_is_limited"],
    ),
    Row(
        "locations that send a request on, by a `rewrite .. last` of a snippet",
        &["http::pipeline::locate::rewrites::MOST"],
        &["locations_send_a_request_on_ten_times_at_most"],
    ),
    Row(
        "responses of one request with `X-Accel-Redirect`",
        &["http::pipeline::internal::MOST"],
        &["nobody_goes_round_in_circles"],
    ),
    Row(
        "regular expressions in the paths of one host",
        &["table::patterns::ALL", "table::patterns::SIZE"],
        &[
            "path_behind_an_uncompiled_pattern_is_refused",
            "rewrite_pattern_is_compiled_once_and_charged",
            "texts_and_what_fits_into_a_set_keep_no_pattern_of_their_own",
        ],
    ),
    Row(
        "concurrent DNS lookups for `auth-url` and `mirror-target`",
        &["local::names::LOOKUPS"],
        &["names_that_nobody_answers_for_hold_up_no_other_ingress"],
    ),
    Row(
        "DNS cache for `auth-url` and `mirror-target`",
        &["local::names::NAMES", "local::names::ADDRESSES", "local::names::FOUND", "local::names::OLD"],
        &[
            "old_addresses_are_used_while_new_ones_are_asked_for",
            "owner_with_most_names_is_evicted_first",
            "few_of_many_addresses_are_kept",
        ],
    ),
    Row(
        "addresses of an authentication service or a mirror target",
        &[
            "http::pipeline::elsewhere::CONNECT",
            "http::pipeline::elsewhere::ADDRESSES",
            "local::names::UNREACHED",
            "local::names::MOST_UNREACHED",
        ],
        &["addresses_that_could_not_be_reached_are_tried_last_for_a_while"],
    ),
    Row(
        "OCSP request",
        &[
            "staple::ledger::AT_ONCE",
            "staple::ledger::OF_ONE",
            "staple::ledger::TURN",
            "staple::fetch::LOOKUP",
            "staple::fetch::ADDRESSES",
            "staple::fetch::CONNECT",
            "staple::fetch::SEND",
            "staple::fetch::READ",
            "staple::question::ADDRESS",
            "staple::fetch::HEAD",
            "staple::fetch::LONGEST",
            "staple::answer::APPOINTED",
            "staple::ledger::FIRST",
            "staple::ledger::LAST",
        ],
        &[
            "an_answer_is_short_and_comes_in_time",
            "only_plain_http_without_credentials_is_asked",
            "the_authority_and_whom_it_appoints_are_believed",
            "silent_ocsp_responder_is_queried_at_growing_intervals",
            "so_many_are_asked_at_once_and_so_much_is_held",
            "one_responder_and_one_owner_leave_places_to_others",
        ],
    ),
    Row(
        "OCSP response validity",
        &["staple::answer::SKEW", "staple::answer::ENDLESS"],
        &["ocsp_response_must_be_current"],
    ),
    Row(
        "TLS session cache",
        &["tls::sessions::SHARDS", "tls::sessions::SESSIONS", "tls::clients::LONGEST"],
        &[
            "so_many_sessions_are_remembered_and_the_oldest_goes",
            "a_session_that_is_too_long_is_not_remembered",
        ],
    ),
    Row(
        "TLS session tickets",
        &["table::ticket_keys::LONGEST", "tls::tickets::LONGEST"],
        &["modified_ticket_is_not_opened", "a_ticket_is_good_for_its_time_under_its_own_rules"],
    ),
    Row(
        "clients tracked per Ingress, or per zone of a snippet, for a rate limit, and for a connection limit",
        &["rate::requests::CLIENTS", "rate::connections::CLIENTS"],
        &["a_table_stays_bounded_and_an_empty_one_costs_next_to_nothing", "a_table_without_room_refuses"],
    ),
    Row(
        "label sets of the request metrics",
        &[
            "metrics::requests::SETS",
            "metrics::requests::OF_MEMORY",
            "metrics::requests::SET",
            "metrics::requests::SETS_OF_PLACE",
            "metrics::requests::FOLDED_OF_PLACE",
        ],
        &[
            "a_flood_of_odd_requests_hides_no_failure_of_a_path",
            "a_place_has_so_many_sets_whatever_its_canaries_are_called",
            "canaries_that_are_gone_leave_their_room_to_later_ones",
            "every_path_has_its_series_beyond_the_room_for_all_kinds",
            "there_is_more_room_where_there_is_more_memory",
        ],
    ),
    Row(
        "names of clients in the request metrics",
        &["metrics::requests::NAMES", "metrics::requests::ALIASES", "metrics::requests::PLACES_OF_NAME"],
        &[
            "clients_make_no_series",
            "names_that_clients_bring_leave_room_to_declared_paths",
            "one_name_has_so_many_places",
        ],
    ),
    Row(
        "access log queue",
        &["access_log::WAITING", "access_log::CHUNK"],
        &["a_writer_that_is_behind_costs_lines_and_no_time"],
    ),
    Row(
        "length of a password that is compared with a hash of SHA-crypt, or of MD5-crypt (`$1$`)",
        &["password::LONGEST_SHA", "password::LONGEST_MD5"],
        &["a_password_that_takes_too_long_fits_no_hash"],
    ),
    Row(
        "password check (basic authentication, slow hashes)",
        &[
            "http::pipeline::access::PATIENCE",
            "local::passwords::THREADS",
            "local::passwords::QUEUE",
            "local::passwords::QUEUES",
            "local::passwords::WAITING",
        ],
        &["a_flood_stops_no_neighbour", "one_password_is_compared_once_for_all_who_wait"],
    ),
    Row(
        "digest authentication: nonces in use",
        &[
            "local::nonces::SHARDS",
            "local::nonces::IN_USE",
            "local::nonces::TIMEOUT",
            "local::nonces::EXPIRES",
            "local::nonces::REPLAYS",
        ],
        &[
            "a_nonce_serves_for_a_while_and_each_count_once",
            "a_table_of_nonces_is_bounded_and_forgets_nothing_that_counts",
        ],
    ),
    Row(
        "digest authentication: failed attempts",
        &["rate::tries::TRIES", "rate::tries::EVASION", "rate::tries::CLIENTS"],
        &[
            "the_fifth_wrong_try_keeps_a_client_out_for_five_minutes",
            "a_table_of_tries_is_bounded_and_keeps_who_tried_last",
            "digest_auth_ignores_a_client_after_five_wrong_passwords",
        ],
    ),
];
