//! The control plane's address: the stream of configuration, and queries of people and tools.

use super::{Listener, Row};

pub(crate) const LISTENER: Listener = Listener {
    heading: "The stream (control plane, `--listen`)",
    krate: "control-plane",
    tested_in: &["control-plane", "shared", "integration-tests"],
    places: &[
        "app.rs",
        "app/exit.rs",
        "app/source.rs",
        "barrier.rs",
        "enrol/accounts.rs",
        "serve.rs",
        "serve",
        "inspect.rs",
        "inspect",
        "peers.rs",
        "peers",
        "store/frame.rs",
        "metrics",
    ],
    rows: ROWS,
    others: &[
        ("app::QUESTIONS", "questions of API servers, each of which has its own time"),
        ("app::INPUTS", "what a source may be ahead"),
        ("app::source::ANNOUNCEMENTS", "what is told may be ahead of who writes it"),
        ("app::HOLDS", "what the pipeline may be ahead"),
        ("app::PINS", "what the pipeline may be ahead"),
        ("app::exit::LEAVING", "the end of the process"),
        ("app::exit::APART", "the pace at which proxies go to other replicas before it"),
        ("app::exit::STAY", "how long the end waits for proxies that find no other replica"),
        ("serve::registry::proxy::MOVES", "how long a proxy that was sent elsewhere is on its way"),
        ("serve::ADMITTED", "connections that are counted already"),
        ("serve::admit::WARNINGS", "the log's pace"),
        ("serve::identity::WARNINGS", "the log's pace"),
        ("inspect::OTHERS", "how often the others are asked for somebody who watches"),
        ("peers::LOOK", "how often other replicas are looked for"),
        ("peers::apart::LASTS", "how long replicas differ before that is said"),
        ("peers::apart::DOUBTS", "how long this replica stands still before it doubts itself"),
        ("inspect::status::TOLD", "problems that are told of an object that is not here"),
        ("inspect::status::LOOK", "how often somebody who watches is told of silence"),
        ("serve::registry::missed::LEFT", "how long other replicas are told of a goodbye"),
        ("serve::registry::SWEEP", "how often silence is looked at"),
        ("serve::convergence::GAP", "how often the fleet is looked through for what is everywhere"),
        ("serve::stream::ENDING", "how a stream that ends is told from one that is cut"),
        ("inspect::decide::USUAL", "how long a pin holds, which is the operator's to say"),
        ("inspect::decide::MOST", "how long a pin holds, which is the operator's to say"),
        ("inspect::decide::RECORD", "what an operator's own question waits for"),
        ("inspect::decide::FORCE", "what an operator's own question waits for"),
        ("serve::reader::ROOM", "room for what a proxy says that there is from the start"),
        ("store::frame::PREFIX", "what gRPC puts before each message"),
        ("serve::AHEAD", "frames for the transport, which count as chunks that are not answered"),
        ("inspect::difference::PLACES", "names that are shown of a difference"),
        ("inspect::leaves::SHOWN", "characters that are shown of a value"),
        ("inspect::pick::NAMED", "versions that an error names"),
        ("inspect::pick::DIGITS_MIN", "digits of a version that name it"),
        ("inspect::pick::DIGITS_MAX", "digits of a version that name it"),
    ],
    // What is remembered of versions comes from no peer.
    other_flags: &["--memory", "--history-count", "--history-bytes"],
};

const ROWS: &[Row] = &[
    Row(
        "connections, and streams, in total",
        &[
            "serve::limits::connections",
            "serve::limits::CONNECTIONS_SHARE",
            "serve::limits::CONNECTION",
            "serve::limits::CONNECTIONS_MAX",
            "serve::limits::DESCRIPTORS_RESERVED",
        ],
        &[
            "connections_fit_into_memory_and_descriptors",
            "who_has_waited_longest_without_a_call_makes_room",
            "there_are_only_so_many_streams",
        ],
    ),
    Row(
        "connections, and streams, per peer address",
        &["serve::limits::per_peer"],
        &["an_address_has_so_many_connections", "one_peer_has_no_more_than_its_share_and_leaves_no_trace"],
    ),
    Row(
        "time to the first request of a connection",
        &["serve::limits::first_call"],
        &["a_connection_without_a_call_has_its_time"],
    ),
    Row(
        "size of an enrolment or renewal message",
        &["serve::identity::MESSAGE"],
        &["a_message_of_enrolment_has_its_size_to_the_byte"],
    ),
    Row(
        "concurrent TokenReviews",
        &["enrol::accounts::REVIEWS", "enrol::accounts::OF_ADDRESS", "enrol::accounts::TURN"],
        &["strangers_keep_nobody_waiting_who_has_a_certificate", "an_address_has_its_turns_and_no_more"],
    ),
    Row(
        "idle timeout of a connection (no request in progress)",
        &["serve::limits::idle"],
        &["a_connection_without_a_call_has_its_time"],
    ),
    Row(
        "keep-alive probe (HTTP/2 PING)",
        &["serve::KEEP_ALIVE", "serve::KEEP_ALIVE_ANSWER"],
        &["a_peer_that_is_gone_without_a_word_is_seen_in_time"],
    ),
    Row(
        "failed accept (out of descriptors or memory)",
        &["serve::admission::PAUSE", "serve::admission::WARNINGS"],
        &[
            "once_in_a_while_with_what_was_missed",
            "an_accept_that_fails_makes_room_and_is_tried_again_after_a_pause",
        ],
    ),
    Row(
        "concurrent calls per connection",
        &["serve::limits::calls"],
        &["a_connection_has_so_many_calls_at_once"],
    ),
    Row("request header list", &["serve::limits::header_list"], &["a_header_list_has_its_size"]),
    Row(
        "time to the Hello of a stream",
        &["serve::session::HELLO"],
        &["a_stream_begins_with_a_hello_of_its_group_in_time"],
    ),
    Row(
        "size of the first message (Hello)",
        &["serve::limits::HELLO"],
        &["messages_have_their_size_to_the_byte"],
    ),
    Row("size of a later message", &["serve::limits::MESSAGE"], &["messages_have_their_size_to_the_byte"]),
    Row(
        "elements of a message, counted before it is decoded",
        &[
            "serve::message::REFUSALS_MAX",
            "serve::shape::LANES",
            "serve::shape::CAPABILITIES",
            "serve::shape::ENTRIES",
        ],
        &["what_a_proxy_may_say_passes_and_one_more_does_not"],
    ),
    Row(
        "length of a name in a message (id, node, zone, group)",
        &["serve::message::NAME_MAX"],
        &["names_are_bounded_and_printable"],
    ),
    Row(
        "length of a key, or of a reason, in a refusal",
        &["serve::message::TEXT_MAX"],
        &["refusals_and_reasons_are_cut"],
    ),
    Row(
        "refusals stored per lane of a proxy",
        &["serve::message::REFUSALS_MAX", "serve::refusals::LANE_MAX"],
        &["refusals_and_reasons_are_cut", "a_lane_has_its_share_and_all_together_theirs"],
    ),
    Row(
        "refusals stored in total",
        &["serve::limits::refusals", "serve::limits::REFUSALS_SHARE"],
        &["the_limits_are_those_of_the_budgets_page", "a_lane_has_its_share_and_all_together_theirs"],
    ),
    Row(
        "size of a chunk of a batch",
        &["store::frame::CHUNK", "store::frame::BUDGET"],
        &[
            "chunks_stay_below_the_limit_and_carry_everything_once",
            "a_resource_larger_than_a_chunk_travels_alone",
        ],
    ),
    Row(
        "unacknowledged batches per lane",
        &["serve::session::lane::WINDOW"],
        &["converges_through_anything"],
    ),
    Row(
        "unacknowledged chunks encoded for one stream alone",
        &["serve::session::lane::CHUNK_WINDOW_ALONE", "serve::session::lane::CHUNK_WINDOW"],
        &[
            "without_a_slot_live_goes_on_and_config_waits",
            "who_never_answers_is_sent_what_is_encoded_for_all",
            "the_window_of_a_full_sync_grows_with_its_answers",
        ],
    ),
    Row(
        "concurrent full syncs (slots)",
        &["serve::limits::full_syncs"],
        &["the_limits_are_those_of_the_budgets_page", "a_full_sync_waits_for_a_slot"],
    ),
    Row(
        "time without an acknowledged chunk, full sync",
        &["serve::session::SLOT"],
        &["a_slot_goes_to_others_while_its_proxy_does_not_answer"],
    ),
    Row(
        "time without an acknowledged chunk, any batch",
        &["serve::session::PROGRESS"],
        &["silence_is_told_from_slowness", "who_is_receiving_a_long_chunk_is_making_progress"],
    ),
    Row(
        "inventory of a returning proxy",
        &[
            "serve::session::inventory::LOT",
            "serve::session::inventory::LOT_RESOURCES",
            "serve::session::inventory::REMOVED",
        ],
        &[
            "who_says_what_it_has_is_sent_what_differs",
            "an_inventory_that_does_not_fit_is_asked_for_in_parts",
            "an_inventory_of_nothing_or_of_too_much_is_followed_by_everything",
        ],
    ),
    Row(
        "consecutive full syncs that end in a wrong root",
        &["serve::session::STRIKES"],
        &["full_syncs_that_do_not_help_end_the_stream"],
    ),
    Row(
        "second stream with the id of an open one",
        &["serve::stream::TAKEN"],
        &["only_the_same_proxy_takes_over", "a_proxy_without_a_claim_waits_for_its_old_stream_to_end"],
    ),
    Row(
        "end of a stream at shutdown",
        &["serve::stream::PATIENCE", "serve::stream::LEAVE"],
        &["a_process_that_ends_sends_its_proxies_away"],
    ),
    Row(
        "freshness rounds: lists for proxies that may be ahead of this replica",
        &[
            "barrier::GAP",
            "barrier::BURST",
            "barrier::SHARE",
            "barrier::WORK",
            "barrier::OWED",
            "barrier::PLACES",
        ],
        &[
            "a_round_that_waited_for_a_server_delays_the_next_ones_little",
            "a_few_rounds_follow_one_another_and_many_leave_time",
            "who_comes_from_where_others_came_from_waits_for_their_round",
        ],
    ),
    Row(
        "heartbeat interval of a stream, busy or idle",
        &["serve::session::HEARTBEAT"],
        &["silence_is_told_from_slowness"],
    ),
    Row(
        "page of a list query",
        &["inspect::page::USUAL", "inspect::page::MOST", "inspect::page::BYTES", "inspect::page::TOKEN"],
        &[
            "no_request_makes_a_page_larger_than_the_largest",
            "a_page_ends_by_number_and_by_bytes_and_not_within_a_place",
        ],
    ),
    Row(
        "changes held back for a watcher of changes, until the last proxy has acknowledged them",
        &["inspect::changes::WAITING", "inspect::changes::PATIENCE"],
        &[
            "a_change_is_told_once_all_have_acknowledged_it",
            "a_change_waits_for_so_long_and_with_so_many_behind_it",
        ],
    ),
    Row(
        "time that an answer about a folder waits for what was in it when the question came",
        &["inspect::reading::PATIENCE"],
        &["questions_about_a_folder_share_a_reading_and_say_if_it_is_not_over"],
    ),
    Row(
        "changes whose propagation time is measured",
        &["serve::convergence::WAITING", "serve::convergence::PATIENCE"],
        &[
            "a_commit_is_measured_from_its_first_word_to_the_last_proxy",
            "with_nobody_there_is_nothing_to_measure_and_with_too_many_the_oldest_goes",
        ],
    ),
    Row(
        "proxies with metric series of their own",
        &["metrics::fleet::LISTED"],
        &["a_thousand_proxies_are_told_one_by_one_and_of_the_others_there_is_a_number"],
    ),
    Row(
        "Ingresses with series of their own in the admission metrics",
        &["metrics::checks::NAMED", "metrics::checks::NAME"],
        &["whoever_asks_makes_so_many_series"],
    ),
    Row(
        "replicas queried for a fleet-wide answer",
        &["peers::PEERS_MAX", "peers::APART", "peers::ask::AT_ONCE"],
        &[
            "so_many_are_asked_at_most_and_that_there_are_more_is_said",
            "who_asks_meanwhile_gets_a_later_answer_without_waiting_for_the_first",
            "one_that_hangs_keeps_nobody_waiting_for_others_that_ask",
        ],
    ),
    Row(
        "query to another replica",
        &["peers::ANSWER", "peers::ask::CONNECT", "peers::ask::SHARE_MAX", "peers::LOOKUP"],
        &[
            "a_replica_that_is_stopped_or_killed_is_never_part_of_all",
            "a_name_keeps_its_addresses_while_it_cannot_be_looked_up",
        ],
    ),
    Row(
        "interval of updates to a watcher of proxies",
        &["inspect::GAP"],
        &["watchers_of_proxies_hear_of_changes"],
    ),
    Row(
        "disconnected proxies that are still counted",
        &[
            "serve::registry::proxy::RETURNS",
            "serve::registry::proxy::VANISHED",
            "serve::registry::SILENT_MAX",
        ],
        &["who_says_goodbye_is_not_counted_and_who_does_not_is_silent", "silent_proxies_are_so_many_at_most"],
    ),
    Row(
        "proxies listed in an answer about an object",
        &["inspect::status::NAMED"],
        &["all_is_said_only_where_all_were_heard"],
    ),
];
