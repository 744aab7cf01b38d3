//! The control plane's webhook address, for API servers.

use super::{Listener, Row};

pub(crate) const LISTENER: Listener = Listener {
    heading: "Admission (control plane, `--validating-webhook`)",
    krate: "control-plane",
    tested_in: &["control-plane", "shared"],
    places: &["webhook.rs", "webhook"],
    rows: &[
        Row(
            "connections",
            &["webhook::room::CONNECTIONS"],
            &["the_newest_connection_gets_in", "a_question_makes_room_once_it_is_answered_and_not_before"],
        ),
        Row(
            "connections of one address, before one of them makes room first; age up to which others make room",
            &["webhook::room::OF_ADDRESS", "webhook::room::YOUNG"],
            &[
                "one_of_a_crowd_goes_first_then_the_oldest_that_is_idle_and_not_young",
                "requests_that_never_end_keep_nobody_out",
            ],
        ),
        Row(
            "TLS handshake timeout; header read timeout of the first request",
            &["webhook::PATIENCE"],
            &["who_is_silent_or_slow_is_let_go"],
        ),
        Row(
            "keep-alive (idle) timeout, and header read timeout of the next request",
            &["webhook::IDLE"],
            &["a_connection_is_kept_for_longer_than_api_servers_keep_it"],
        ),
        Row("request head", &["webhook::HEAD"], &["a_question_has_so_many_bytes"]),
        Row("request body (AdmissionReview)", &["webhook::MOST"], &["a_question_has_so_many_bytes"]),
        Row(
            "request body that is read without waiting",
            &["webhook::ORDINARY"],
            &["an_ordinary_question_waits_for_nobody"],
        ),
        Row(
            "large request bodies read at a time",
            &["webhook::AT_ONCE"],
            &["an_ordinary_question_waits_for_nobody"],
        ),
        Row(
            "review timeout, from the head to the response",
            &["webhook::WHOLE", "webhook::JUDGING"],
            &["who_is_silent_or_slow_is_let_go", "what_nobody_can_judge_in_time_passes"],
        ),
        Row(
            "warnings in a response",
            &["webhook::review::WARNINGS", "webhook::review::LONGEST"],
            &["an_answer_has_the_uid_and_few_warnings"],
        ),
        Row("certificate file", &["webhook::pair::MOST"], &["a_new_pair_is_shown_and_half_of_one_is_not"]),
        Row(
            "warnings in the log",
            &["webhook::WARNINGS", "webhook::pair::WARNINGS"],
            &["once_in_a_while_with_what_was_missed"],
        ),
    ],
    others: &[
        ("webhook::STAY", "how long a process that ends still answers"),
        ("webhook::ca_bundle::LOOK", "how often the configuration of the API server is looked at"),
        ("webhook::ca_bundle::RETRY", "how often the configuration of the API server is looked at"),
        ("webhook::ca_bundle::WARNINGS", "how often it is said"),
    ],
    other_flags: &[],
};
