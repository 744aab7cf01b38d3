//! Health and admin pages, which the same server code serves for both planes, and their logs.

use super::{Listener, Row};

pub(crate) const LISTENER: Listener = Listener {
    heading: "Health and admin (both planes)",
    krate: "shared",
    tested_in: &["shared"],
    places: &["admin", "telemetry"],
    rows: &[
        Row("connections", &["admin::serve::connections"], &["a_probe_gets_in_however_many_are_silent"]),
        Row(
            "time that the oldest connection has to send its request, in a burst",
            &["admin::serve::young", "admin::serve::patience"],
            &["a_burst_closes_nobody_who_had_no_time_to_ask"],
        ),
        Row(
            "header read timeout, and idle timeout",
            &["admin::serve::head"],
            &["who_is_silent_idle_or_slow_is_let_go_in_time"],
        ),
        Row("request head", &["admin::serve::head_bytes"], &["a_head_has_so_many_bytes"]),
        Row(
            "concurrent responses other than `/healthz`, `/readyz` and `/livez`",
            &["admin::serve::pages"],
            &["a_probe_waits_for_no_page", "a_page_that_is_not_taken_makes_room"],
        ),
        Row(
            "piece of a proxy's metrics, which are as long as there are series",
            &["admin::serve::maker::LENGTH"],
            &[
                "a_page_is_made_in_pieces_of_bounded_length",
                "what_its_client_does_not_take_of_a_page_is_not_made",
            ],
        ),
        Row(
            "time that a response waits for its client, in total",
            &["admin::serve::page"],
            &["a_page_that_is_not_taken_makes_room", "what_its_client_does_not_take_of_a_page_is_not_made"],
        ),
        Row(
            "lifetime of a connection",
            &["admin::serve::life", "admin::serve::farewell"],
            &["an_answer_that_is_not_read_holds_a_connection_for_its_life_at_most"],
        ),
        Row("warnings in the log", &["admin::serve::warnings"], &["once_in_a_while_with_what_was_missed"]),
        Row(
            "log queue",
            &["telemetry::lossy::LINES", "telemetry::lossy::BYTES"],
            &["a_pipe_that_is_never_read_holds_nobody_up", "bytes_are_bounded_too"],
        ),
    ],
    others: &[
        ("admin::serve::gzip::WORTHWHILE", "a page that is compressed"),
        ("admin::serve::sent::PIECE", "bytes that are handed over at once"),
        ("telemetry::lossy::LOOK", "how often the end looks whether all is written"),
    ],
    other_flags: &[],
};
