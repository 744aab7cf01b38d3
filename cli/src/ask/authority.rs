//! `firth authority`: the trusted roots of the planes, and the progress of a rotation.

use anyhow::Context as _;
use serde::Serialize;
use shared::proto::identity::{AuthorityRoot, GetAuthorityResponse, RootPhase};

use crate::client::AskError;
use crate::columns::Columns;
use crate::moment;

/// The authority; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Authority {
    /// Whether a rotation is under way.
    rotating: bool,
    certificate_seconds: u64,
    certificate_until: String,
    roots: Vec<Root>,
}

#[derive(Debug, Serialize)]
struct Root {
    digest: String,
    phase: &'static str,
    signs_from: String,
    leaves_at: String,
    until: String,
}

/// The response after a rotation was requested, or not. Nobody should repeat a rotation because only its outcome could
/// not be shown.
pub(super) fn outcome<T>(rotates: bool, asked: Result<T, AskError>) -> anyhow::Result<T> {
    let asked = asked.map_err(anyhow::Error::from);
    if rotates { asked.context("the rotation has begun, but cannot be shown") } else { asked }
}

/// The printed form of the response.
pub(super) fn view(answer: GetAuthorityResponse) -> Authority {
    Authority {
        rotating: answer.roots.len() > 1,
        certificate_seconds: answer.certificate_seconds,
        certificate_until: moment::rfc3339(answer.certificate_until.as_ref()),
        roots: answer.roots.into_iter().map(root).collect(),
    }
}

fn root(root: AuthorityRoot) -> Root {
    Root {
        phase: match root.phase() {
            RootPhase::Believed => "believed",
            RootPhase::Signs => "signs",
            RootPhase::Leaves => "leaves",
            RootPhase::Unspecified => "unknown",
        },
        signs_from: moment::rfc3339(root.signs_from.as_ref()),
        leaves_at: moment::rfc3339(root.leaves_at.as_ref()),
        until: moment::rfc3339(root.until.as_ref()),
        digest: root.digest,
    }
}

/// For people: the roots, and what comes next.
pub(super) fn text(authority: &Authority) -> String {
    let mut columns = Columns::new(["ROOT", "PHASE", "SIGNS FROM", "LEAVES AT", "GOOD UNTIL"]);
    for root in &authority.roots {
        let shown: String = root.digest.chars().take(16).collect();
        let Root { phase, signs_from, leaves_at, until, .. } = root;
        columns.push([shown, (*phase).to_owned(), signs_from.clone(), leaves_at.clone(), until.clone()]);
    }
    let phase = |wanted| authority.roots.iter().find(|root| root.phase == wanted);
    let next = match (phase("believed"), phase("leaves")) {
        (Some(new), _) => {
            format!("rotation, 1 of 2: the new root is believed, and signs from {}", new.signs_from)
        }
        (None, Some(old)) => {
            format!("rotation, 2 of 2: the new root signs, the old one goes at {}", old.leaves_at)
        }
        (None, None) => "no rotation is under way".to_owned(),
    };
    let Authority { certificate_seconds, certificate_until, .. } = authority;
    format!(
        "{}{next}\ncertificates live {}; that of this control plane is good until {certificate_until}\n",
        columns.render(0),
        moment::whole(*certificate_seconds),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(phases: &[RootPhase]) -> GetAuthorityResponse {
        let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let root = |(at, phase): (usize, &RootPhase)| AuthorityRoot {
            digest: at.to_string().repeat(64),
            phase: (*phase).into(),
            signs_from: time(1_795_287_838),
            leaves_at: if at + 1 < phases.len() { time(1_795_374_238) } else { None },
            until: time(1_889_900_000),
        };
        GetAuthorityResponse {
            roots: phases.iter().enumerate().map(root).collect(),
            certificate_seconds: 86_400,
            certificate_until: time(1_795_374_238),
        }
    }

    #[test]
    fn a_rotation_that_cannot_be_shown_has_begun() {
        let ended = || Err::<(), _>(AskError::Ended { server: "a:1".to_owned() });
        let [after, without] =
            [true, false].map(|rotates| format!("{:#}", outcome(rotates, ended()).unwrap_err()));
        let why = "the control plane at a:1 ended the stream";
        assert_eq!(after, format!("the rotation has begun, but cannot be shown: {why}"));
        assert_eq!(without, why);
    }

    #[test]
    fn each_phase_of_a_rotation_says_what_comes_next() {
        use RootPhase::{Believed, Leaves, Signs};
        for (phases, said) in [
            (&[Signs][..], "no rotation is under way"),
            (&[Signs, Believed], "1 of 2: the new root is believed, and signs from 2026-11-21T19:03:58.000Z"),
            (&[Leaves, Signs], "2 of 2: the new root signs, the old one goes at 2026-11-22T19:03:58.000Z"),
        ] {
            let view = view(answer(phases));
            assert!(text(&view).contains(said), "{}", text(&view));
            assert!(text(&view).contains("certificates live 24 h;"));
            let json = serde_json::to_value(&view).unwrap();
            assert_eq!(json["rotating"], phases.len() > 1);
            assert_eq!(json["roots"].as_array().map(Vec::len), Some(phases.len()));
            assert_eq!(json["roots"][0]["digest"], "0".repeat(64));
        }
    }
}
