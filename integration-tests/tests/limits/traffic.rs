//! The proxy's addresses for traffic.

use super::{Listener, Row};

pub(crate) const LISTENER: Listener = Listener {
    heading: "Traffic (data plane, `--http`, `--https`)",
    krate: "data-plane",
    tested_in: &["data-plane", "shared"],
    places: &[
        "access_log.rs",
        "app.rs",
        "codec",
        "http",
        "listen.rs",
        "local",
        "rate/connections.rs",
        "rate/requests.rs",
        "table/policy/clients.rs",
        "table/sizes.rs",
        "table/timeouts.rs",
        "tls/sessions.rs",
        "upstream/call.rs",
        "upstream/payload.rs",
        "upstream/send.rs",
        "worker.rs",
    ],
    rows: ROWS,
    others: OTHERS,
    other_flags: &["--workers", "--drain-grace", "--drain-deadline"],
};

const ROWS: &[Row] = &[
    Row(
        "connections in total",
        &["local::budgets::CONNECTIONS"],
        &[
            "clients_leave_descriptors_for_endpoints",
            "a_full_table_lets_the_newest_in_for_the_longest_idle",
            "a_client_with_a_request_does_not_make_room",
            "places_are_those_of_all_workers_together",
        ],
    ),
    Row(
        "descriptors",
        &["app::DESCRIPTORS"],
        &[
            "clients_leave_descriptors_for_endpoints",
            "endpoints_without_a_descriptor_are_503_and_kept_ones_make_room",
        ],
    ),
    Row("an accept that fails", &["listen::PAUSE"], &["only_shortage_pauses"]),
    Row(
        "idle connections that make room at a time",
        &["worker::SHED", "worker::SETTLED"],
        &[
            "the_longest_idle_make_room",
            "who_was_just_answered_does_not_make_room",
            "where_memory_is_short_the_idle_go_and_bodies_go_to_files",
        ],
    ),
    Row(
        "connections that the kernel keeps until they are accepted",
        &["listen::BACKLOG"],
        &["nobody_connects_before_the_sockets_are_open"],
    ),
    Row(
        "a client that is gone without a word",
        &["listen::KEEP_ALIVE"],
        &["the_queue_is_emptied_and_its_connections_are_kept_alive"],
    ),
    Row(
        "bytes held for clients",
        &["http::pipeline::log::REQUEST", "local::quota::STEP"],
        &[
            "clients_leave_descriptors_for_endpoints",
            "the_new_is_refused_before_the_begun",
            "it_is_drawn_in_steps_and_all_given_back",
            "without_memory_the_new_is_refused_and_the_rest_goes_on",
            "where_memory_is_short_the_idle_go_and_bodies_go_to_files",
        ],
    ),
    Row(
        "a head of HTTP/1.1",
        &[
            "codec::guard::start_line",
            "codec::guard::field_line",
            "codec::guard::head",
            "codec::guard::fields",
        ],
        &["heads_have_their_sizes_to_the_byte", "a_refusal_has_nginx_status"],
    ),
    Row(
        "a head of HTTP/1.1 where the fleet says how long",
        &["table::policy::clients::FIRST", "table::policy::clients::LARGEST"],
        &[
            "a_line_fills_a_buffer_and_nobody_has_more_than_we_can_hold",
            "a_head_may_be_as_long_as_the_fleet_says",
        ],
    ),
    Row(
        "empty lines before a request",
        &["codec::h1::scan::MAX_EMPTY_LINES"],
        &["heads_have_their_sizes_to_the_byte"],
    ),
    Row(
        "names in a Connection field",
        &["codec::head::hop::MAX_OPTIONS"],
        &["heads_have_their_sizes_to_the_byte"],
    ),
    Row(
        "a chunk's line, its extensions and the trailers of a body",
        &[
            "codec::h1::chunk::MAX_SIZE_LINE",
            "codec::h1::chunk::MAX_EXTENSIONS",
            "codec::h1::chunk::MAX_TRAILERS",
        ],
        &["chunks_have_their_sizes_to_the_byte"],
    ),
    Row(
        "a header list of HTTP/2",
        &["http::h2::HEADER_LIST", "http::h2::FIELD"],
        &["a_header_list_has_32_kibibytes", "what_is_said_in_a_byte_by_reference_is_not_held_a_thousandfold"],
    ),
    Row("fields of HTTP/2", &["codec::guard::fields"], &["a_head_of_http2_has_a_hundred_fields"]),
    Row(
        "bytes of heads on a connection of HTTP/2",
        &[
            "http::h2::streams::ORDINARY",
            "http::h2::streams::COPIES",
            "http::h2::streams::HEADS",
            "http::h2::streams::HEADS_A_BYTE",
        ],
        &[
            "ordinary_requests_all_run_and_large_ones_as_they_were_paid",
            "what_is_said_in_a_byte_by_reference_is_not_held_a_thousandfold",
        ],
    ),
    Row(
        "bytes of heads that wait so",
        &["http::h2::streams::QUEUED", "http::h2::streams::HEADS_A_BYTE", "http::h2::streams::WAITING"],
        &["so_much_waits_and_no_more", "a_request_that_waits_for_room_can_be_taken_back"],
    ),
    Row(
        "bytes of answers that nobody takes, a connection of HTTP/2",
        &["http::h2::streams::UNTAKEN"],
        &["who_takes_nothing_has_no_further_answer_read", "of_answers_that_nobody_takes_few_are_in_hand"],
    ),
    Row(
        "bytes handed to h2",
        &["http::h2::SEND_BUFFER"],
        &["of_answers_that_nobody_takes_few_are_in_hand", "who_takes_nothing_at_all_is_let_go"],
    ),
    Row(
        "bytes of uploads that a client may send ahead",
        &["http::h2::STREAM_WINDOW", "http::h2::CONNECTION_WINDOW"],
        &["a_connection_is_told_its_limits_at_first"],
    ),
    Row(
        "bytes of a body in hand",
        &[
            "table::sizes::buffer",
            "upstream::payload::AT_FIRST",
            "upstream::payload::BATCH",
            "local::spill::PART",
        ],
        &["a_body_is_in_memory_to_the_byte", "a_large_one_stands_in_a_file_and_not_in_memory"],
    ),
    Row(
        "bytes of a body in memory beyond that",
        &["upstream::payload::ORDINARY", "local::budgets::SPARE"],
        &[
            "a_body_is_in_memory_to_the_byte",
            "memory_stands_in_while_there_is_plenty",
            "where_memory_is_short_the_idle_go_and_bodies_go_to_files",
        ],
    ),
    Row(
        "bytes of bodies in files",
        &["local::spill::TOTAL"],
        &[
            "what_is_written_is_read_and_leaves_nothing",
            "a_body_without_room_is_503_and_harms_nobody_else",
            "values",
        ],
    ),
    Row(
        "bytes of a body",
        &["table::sizes::body"],
        &["what_is_too_long_is_not_read_on", "a_body_that_is_too_long_is_413_however_it_says_so"],
    ),
    Row(
        "bytes of a streamed body that are kept until there is an answer",
        &["upstream::call::KEPT"],
        &["a_streamed_body_that_is_partly_gone_is_never_sent_again"],
    ),
    Row(
        "the head of an endpoint's answer",
        &["table::sizes::head", "codec::guard::MAX_FIELDS"],
        &["the_head_of_an_answer_fits_the_said_buffer_or_is_502", "unclear_responses_are_refused"],
    ),
    Row(
        "interim answers of an endpoint",
        &["upstream::send::INTERIM", "http::pipeline::external::question::INTERIM"],
        &["a_backend_hints_so_often_before_it_answers"],
    ),
    Row(
        "copies of requests under way",
        &[
            "local::copies::PART",
            "local::copies::MOST",
            "local::copies::DISK",
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
        "frames of HTTP/2 about nothing",
        &["http::h2::frames::IDLE_FRAMES", "http::h2::frames::PERIOD", "http::h2::frames::FOR_EACH"],
        &[
            "frames_about_nothing",
            "who_takes_a_large_answer_may_open_its_windows",
            "frames_about_nothing_end_the_connection",
        ],
    ),
    Row(
        "streams of a connection at once",
        &["http::h2::STREAMS"],
        &["a_connection_has_128_streams_at_once", "a_connection_is_told_its_limits_at_first"],
    ),
    Row(
        "streams that are reset",
        &[
            "http::h2::frames::STREAMS",
            "http::h2::frames::PERIOD",
            "http::h2::PENDING_RESETS",
            "http::h2::CAUSED_RESETS",
        ],
        &[
            "more_than_half_of_two_hundred_streams",
            "resets_at_any_pace_end_the_connection",
            "resets_at_once_and_resets_of_ours_end_the_connection",
        ],
    ),
    Row(
        "requests of a connection",
        &["local::limits::requests"],
        &["a_connection_serves_so_many_requests", "a_connection_lasts_as_long_as_the_fleet_says"],
    ),
    Row(
        "a head, from its first byte; a first request, from accept; a handshake of TLS",
        &["local::limits::head", "local::limits::handshake"],
        &[
            "a_client_that_says_nothing_has_ten_seconds",
            "a_head_has_ten_seconds_in_all_however_it_dribbles_in",
            "a_tls_handshake_has_ten_seconds_in_all",
            "a_connection_of_http2_has_the_same_times",
        ],
    ),
    Row(
        "a connection without a request",
        &["local::limits::idle"],
        &["a_connection_may_be_idle_for_75_seconds", "a_connection_of_http2_has_the_same_times"],
    ),
    Row(
        "between two reads of a body",
        &["table::timeouts::client_body"],
        &[
            "a_body_may_stay_away_for_60_seconds",
            "a_body_that_stays_away_has_the_said_time_however_it_is_sent_on",
        ],
    ),
    Row(
        "between two writes to a client",
        &["local::limits::client_send"],
        &[
            "a_slow_client_is_waited_for_as_long_as_it_takes_something",
            "a_client_takes_nothing_for_60_seconds",
        ],
    ),
    Row(
        "a body that is slow",
        &["local::limits::body_rate", "local::limits::body_grace"],
        &["one_byte_each_25_seconds_is_too_slow_and_240_a_second_are_not"],
    ),
    Row(
        "a client that is still sending when it has its answer",
        &["local::limits::discard", "local::limits::discard_pause"],
        &["an_upload_that_nobody_wants_has_30_seconds_and_5_without_a_byte"],
    ),
    Row("the end of a connection", &["local::limits::linger"], &["a_connection_of_http2_has_the_same_times"]),
    Row(
        "an endpoint",
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
        "an answer that is being compressed",
        &["http::reply::coded::GZIP", "http::reply::coded::BROTLI", "http::reply::coded::HARD"],
        &["compressing_holds_no_more_than_was_set_apart", "without_room_answers_go_as_they_are"],
    ),
    Row(
        "idle connections to endpoints",
        &["local::limits::upstream_idle", "local::limits::idle_upstreams"],
        &["every_limit_has_the_default_that_is_documented", "one_budget_for_all_endpoints", "the_old_go"],
    ),
    Row(
        "sessions of TLS that are remembered",
        &["tls::sessions::SHARDS", "tls::sessions::SESSIONS"],
        &["so_many_sessions_are_remembered_and_the_oldest_goes"],
    ),
    Row(
        "clients whose rate, or whose connections, are counted",
        &["rate::requests::CLIENTS", "rate::connections::CLIENTS"],
        &["a_table_stays_bounded_and_an_empty_one_costs_next_to_nothing", "a_table_without_room_refuses"],
    ),
    Row(
        "lines of the access log that wait",
        &["access_log::WAITING", "access_log::CHUNK"],
        &["a_writer_that_is_behind_costs_lines_and_no_time"],
    ),
    Row(
        "a password that is compared",
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
        "nonces of digest authentication in use",
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
];

const OTHERS: &[(&str, &str)] = &[
    ("access_log::FINISH", "the end of the process"),
    ("access_log::LOOK", "how often a file is looked for"),
    ("codec::body::JOINED", "what is put together"),
    ("codec::error::COUNT", "how many kinds of errors there are"),
    ("codec::fcgi::END_BODY", "the format"),
    ("codec::fcgi::HEADER", "the format"),
    ("codec::fcgi::MOST", "the format"),
    ("codec::fcgi::PROTOCOL_STATUS", "the format"),
    ("codec::head::request::LITTLE", "what is not worth a copy"),
    ("codec::outgoing::FULL", "bytes for the kernel at a time"),
    ("codec::outgoing::SLICES", "pieces for the kernel at a time"),
    ("codec::stream::ENOUGH", "room of a buffer"),
    ("codec::stream::ROOM", "room of a buffer, which is reckoned where it is held"),
    ("http::h2::frames::HEADER", "the format"),
    ("http::h2::frames::PREFACE", "the format"),
    ("http::h2::send::COPIED", "what is put elsewhere to wait"),
    ("http::pipeline::elsewhere::ADDRESSES", "tries of a mirror or a question"),
    ("http::pipeline::external::PATIENCE", "an answer of who is asked for authentication, as of an endpoint"),
    ("http::pipeline::log::LONGEST_LINE", "what is logged of a line"),
    ("http::reply::coded::HIGHEST", "how hard is tried"),
    ("http::reply::coded::ROOM", "room of a buffer"),
    ("http::reply::coded::USUAL", "how hard is tried"),
    ("http::reply::coded::WINDOW", "a part of what is held"),
    ("http::reply::coded::HARD_WINDOW", "a part of what is held"),
    ("http::pipeline::trace::LENGTH", "the format"),
    ("http::pipeline::send::UNCOUNTED", "tries where the number is not limited"),
    ("rate::connections::COUNT", "bits of a slot"),
    ("rate::connections::COUNT_BITS", "bits of a slot"),
    ("local::buffers::KEPT", "what is kept for the next user"),
    ("local::buffers::KEPT_ROOM", "what is kept for the next user"),
    ("local::nonces::LENGTH", "the format"),
    ("local::nonces::OWN", "the format"),
    ("local::names::FOUND", "of names that the configuration has"),
    ("local::names::LOOKUPS", "of names that the configuration has"),
    ("local::names::MISSING", "of names that the configuration has"),
    ("local::names::NAMES", "of names that the configuration has"),
    ("local::passwords::IDLE", "how long a thread stays"),
    ("local::passwords::REMEMBERED", "a table of fixed size"),
    ("local::passwords::SHARDS", "a table of fixed size"),
    ("local::timer::NEVER", "no time"),
    ("local::timer::TICK", "how coarse times are"),
    ("local::verdicts::BYTES", "a table of fixed size"),
    ("local::verdicts::ENTRY", "a table of fixed size"),
    ("local::verdicts::SHARDS", "a table of fixed size"),
];
