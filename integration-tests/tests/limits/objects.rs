//! Limits of tenants' objects, and the cost of their regular expressions.

use super::{Listener, Row};

pub(crate) const LISTENER: Listener = Listener {
    heading: "Objects (control plane)",
    krate: "control-plane",
    tested_in: &["control-plane"],
    places: &[
        "annotations.rs",
        "annotations/hosts.rs",
        "annotations/hosts",
        "annotations/snippets",
        "compile/claim/tls.rs",
        "compile/copies.rs",
        "compile/host",
        "compile/referred.rs",
        "compile/rejection.rs",
        "compile/size.rs",
        "index/backends.rs",
    ],
    rows: &[
        Row(
            "text of one Ingress",
            &["compile::rejection::MAX_BYTES"],
            &["what_an_api_server_takes_is_not_too_much", "too_much_is_rejected"],
        ),
        Row(
            "copies of one Ingress' annotations and Secret names, in all of its Routes, Hosts and Backends",
            &["compile::size::COPIES"],
            &[
                "usual_ones_are_far_from_it",
                "what_an_ingress_says_of_thousands_of_hosts_is_counted_on_each",
                "regular_expressions_count_as_they_are_compiled_on_each_host",
                "what_is_said_counts_for_each_backend",
                "what_is_said_counts_on_each_host",
                "secrets_count_on_each_host_that_none_lists",
            ],
        ),
        Row(
            "entries of a ConfigMap that an Ingress names",
            &["compile::referred::MOST_OF_A_MAP", "compile::size::COPIES"],
            &["a_configmap_counts_on_each_host", "a_configmap_that_comes_to_too_much_is_of_no_use"],
        ),
        Row(
            "compiled regular expressions in the paths of one Ingress",
            &["compile::rejection::MAX_PATTERNS"],
            &["patterns_of_one_ingress_are_bounded_together"],
        ),
        Row(
            "Secrets in `spec.tls` of one Ingress",
            &["compile::claim::tls::MOST"],
            &["so_many_secrets_count_and_hosts_of_others_have_none"],
        ),
        Row(
            "regular expressions in `server-alias` of one Ingress",
            &["annotations::hosts::MOST_PATTERNS", "annotations::hosts::AUTOMATONS"],
            &["a_few_patterns_are_enough", "automatons_of_all_patterns_are_bounded_together"],
        ),
        Row(
            "directives accepted from one snippet",
            &[
                "annotations::snippets::headers::MOST",
                "annotations::snippets::headers::MOST_BYTES",
                "annotations::snippets::shortcuts::MOST",
                "annotations::snippets::shortcuts::MOST_BYTES",
                "annotations::snippets::shortcuts::MOST_OF_PATTERNS",
            ],
            &["a_snippet_is_taken_up_to_a_size", "there_is_an_end_to_it"],
        ),
        Row(
            "variables that are followed through one snippet",
            &[
                "annotations::snippets::worlds::MOST",
                "annotations::snippets::worlds::MOST_VARIABLES",
                "annotations::snippets::worlds::MOST_BYTES",
            ],
            &["many_worlds_are_unknown", "long_snippets_are_not_followed"],
        ),
        Row(
            "problems reported for one Ingress' annotations",
            &["annotations::MOST_FAULTS"],
            &["what_tenants_write_is_shown_short"],
        ),
        Row(
            "Ingresses that are told which one owns a path that they claim too",
            &["compile::host::dependents::NAMED"],
            &["one_owner_of_a_path_that_thousands_claim"],
        ),
        Row(
            "canaries for all backends of a host, by `spec.defaultBackend`",
            &["compile::host::canaries::EVERYWHERE"],
            &["canaries_beside_all_backends_of_a_host_cost_a_few_looks_at_each"],
        ),
        Row(
            "canaries listed for a Backend",
            &["index::backends::ALTERNATIVES"],
            &["canaries_cannot_make_the_backend_that_they_stand_beside_large"],
        ),
    ],
    others: &[
        ("annotations::hosts::LONGEST", "what a name of a host is (RFC 1035)"),
        ("annotations::hosts::patterns::KEPT", "what is kept for the next user"),
        ("compile::copies::NAME_HEAD", "what is charged"),
        ("compile::size::PATH_HEAD", "what is charged"),
        ("compile::rejection::MAX_LABEL", "what a name of a host is (RFC 1035)"),
        ("compile::rejection::MAX_NAME", "what a name of a host is (RFC 1035)"),
    ],
    other_flags: &[],
};

pub(crate) const PATTERNS: Listener = Listener {
    heading: "Regular expressions (both planes)",
    krate: "shared",
    tested_in: &["shared"],
    places: &["pattern.rs", "pattern"],
    rows: &[
        Row("length of a pattern", &["pattern::LENGTH"], &["what_is_no_pattern_is_said"]),
        Row(
            "compiled size of a pattern",
            &["pattern::SIZE", "pattern::host::SIZE", "pattern::PART_SIZE"],
            &["what_is_no_pattern_is_said", "usual_long_ones_are_taken_and_answer_long_texts"],
        ),
        Row(
            "whole DFA of a pattern for host names",
            &["pattern::host::AUTOMATON"],
            &["one_whose_automaton_explodes_is_refused", "usual_ones_are_small"],
        ),
        Row(
            "groups; redundant alternatives; nested repetitions of a part in a pattern with look-around or backreferences",
            &["pattern::MOST_GROUPS", "pattern::MOST_REPEATED", "pattern::MOST_TURNS"],
            &["what_one_request_may_cost_is_bounded", "alternatives_that_say_nothing_are_few"],
        ),
        Row(
            "branches of a pattern",
            &["pattern::quick::WAYS_AN_OCTET", "pattern::quick::WAYS"],
            &["optional_parts_of_optional_parts_are_few"],
        ),
        Row(
            "matching cost of all patterns for one request",
            &["pattern::steps::ALL"],
            &["what_one_request_may_cost_is_bounded", "a_match_that_takes_too_long_is_not_a_mismatch"],
        ),
        Row(
            "lazy DFA cache of a thread, for a set of patterns",
            &["pattern::quick::CACHE"],
            &["a_set_gives_up_rather_than_thrash"],
        ),
        Row(
            "lazy DFA cache of a thread, for one pattern, forwards and backwards",
            &["pattern::AUTOMATON", "pattern::PART_AUTOMATON"],
            &["what_a_thread_keeps_of_all_patterns_is_bounded"],
        ),
        Row(
            "caches that a thread keeps, for single patterns and for sets",
            &["pattern::KEPT", "pattern::quick::KEPT"],
            &["what_a_thread_keeps_of_all_patterns_is_bounded", "caches_take_what_is_allowed_together"],
        ),
    ],
    others: &[
        ("pattern::FEW_STATES", "when an automaton is worth its memory"),
        ("pattern::FOR_CLASS", "what is charged"),
        ("pattern::FOR_COUNT", "what is charged"),
        ("pattern::FOR_GROUP", "what is charged"),
        ("pattern::FOR_OCTET", "what is charged"),
        ("pattern::GROUPS", "how many a template can name"),
        ("pattern::PAIRS_A_STEP", "what is charged"),
        ("pattern::STATES_A_STEP", "what is charged"),
        ("pattern::host::OCTETS_A_STEP", "what is charged"),
        ("pattern::quick::CLEARS", "when a search gives up"),
        ("pattern::quick::FITS_A_STEP", "what is charged"),
        ("pattern::quick::GROWTH_A_STEP", "what is charged"),
        ("pattern::quick::OCTETS", "when a search gives up"),
        ("pattern::quick::OCTETS_A_STEP", "what is charged"),
    ],
    other_flags: &[],
};
