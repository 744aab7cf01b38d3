//! Checks an Ingress that is not stored yet, for the webhook: by the same rules, without adding it to the index (as
//! ingress-nginx' webhook does).
//!
//! **Invariant:** a review changes nothing, and costs as much as applying the Ingress would.

use std::sync::Arc;

use shared::resource::PathType;

use super::Index;
use super::version::Version;
use crate::annotations::PREFIX;
use crate::compile::claim::Claim;
use crate::compile::referred::AllReferred;
use crate::compile::{rejection, settings};
use crate::objects::{Ingress, IngressPathType, Object};
use crate::problem::{Fault, shown};
use crate::reference::Reference;

/// The suffix of snippets' names, of any vendor.
const SNIPPET: &str = "-snippet";

/// The result of a review.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Why the Ingress is refused; `None` if it is admitted.
    pub refused: Option<String>,
    /// Warnings for its owner.
    pub warnings: Vec<String>,
}

impl Index {
    /// Checks an Ingress that is about to be created or replaced.
    pub fn review(&self, ingress: &Arc<Ingress>) -> Verdict {
        let mut warnings = Vec::new();
        let refused = self.refusal(ingress, &mut warnings).err();
        Verdict { refused, warnings }
    }

    /// Returns the reason of a refusal as an error.
    fn refusal(&self, ingress: &Arc<Ingress>, warnings: &mut Vec<String>) -> Result<(), String> {
        if let Some(prefix) = &self.options.prefix
            && self.is_of_our_class(ingress)
            && self.may_be_ours(&ingress.metadata.namespace)
            && let Some(key) = prefix.misnamed(ingress)
        {
            return Err(format!(
                "{key} has no effect: --annotations-prefix says what annotations begin with"
            ));
        }
        let taken_in = self.options.prefix.as_ref().map(|prefix| prefix.usual(Arc::clone(ingress)));
        let ingress = taken_in.as_ref().unwrap_or(ingress);
        // Of any class: an ingress-nginx in the same cluster without a webhook reads it, too.
        if let Some(fault) = rejection::inspected(ingress).first() {
            return Err(self.text_of(fault));
        }
        if !self.is_of_our_class(ingress) || !self.may_be_ours(&ingress.metadata.namespace) {
            return Ok(());
        }
        if self.options.disable_catch_all && ingress.spec.default_backend.is_some() {
            return Err(
                "spec.defaultBackend: --disable-catch-all is on, and this Ingress would be a catch-all"
                    .into(),
            );
        }
        let configmap = self.objects.configmap(&self.options.configmap).map(|it| &**it);
        if settings::validates_paths(configmap)
            && let Some((path, kind)) = odd_path(ingress)
        {
            let path = shown(path);
            return Err(format!(
                "ingress contains invalid paths: path {path} cannot be used with pathType {kind}"
            ));
        }
        self.annotations_refusal(ingress).map_err(|text| self.in_own_names(text))?;
        let version = Version::of(Object::Ingress(Arc::clone(ingress)));
        if let Some(fault) = version.faults(&self.allowed).first() {
            return Err(self.text_of(fault));
        }
        let Some(parsed) = version.parsed() else {
            return Ok(());
        };
        // What depends on other objects may change until it is read, but not this.
        let name = ingress.metadata.object_name();
        let out_of_reach = |it: &Reference| Some((it.what, self.out_of_reach(&name, it)?));
        let referred: AllReferred = parsed.refs.keys().filter_map(out_of_reach).collect();
        let claim = Claim::of(ingress, Arc::clone(parsed), referred, self.of_fleet.clone());
        self.overlap(ingress, &claim)?;
        warnings.extend(claim.all_faults().map(|fault| self.text_of(fault)));
        Ok(())
    }

    /// A fault as text, with the owner's annotation prefix.
    fn text_of(&self, fault: &Fault) -> String {
        let Fault { field, reason, .. } = fault;
        self.in_own_names(if field.is_empty() { reason.clone() } else { format!("{field}: {reason}") })
    }

    fn in_own_names(&self, text: String) -> String {
        match &self.options.prefix {
            Some(prefix) => prefix.restored_text(text),
            None => text,
        }
    }

    /// Checks names and texts of annotations, whatever their meaning.
    fn annotations_refusal(&self, ingress: &Ingress) -> Result<(), String> {
        let annotations = &ingress.metadata.annotations;
        if let Some((key, word)) = self.allowed.forbidden(annotations) {
            return Err(format!("{key} annotation contains invalid word {word}"));
        }
        let snippet = annotations.keys().find(|key| key.ends_with(SNIPPET));
        match snippet.filter(|_| !self.of_fleet.allows_snippets) {
            Some(key) => Err(format!(
                "{key} annotation cannot be used. Snippet directives are disabled by the Ingress administrator: the ConfigMap does not say \
                 allow-snippet-annotations: \"true\""
            )),
            None => Ok(()),
        }
    }

    /// Another Ingress that has one of its paths. As in ingress-nginx, canaries are exempt, as is any Ingress that sets
    /// `canary`.
    fn overlap(&self, ingress: &Ingress, claim: &Claim) -> Result<(), String> {
        if says_canary(ingress) {
            return Ok(());
        }
        for (host, paths) in &claim.hosts {
            let Some(state) = self.hosts.get(host) else { continue };
            for path in paths {
                let claimants = [PathType::Exact, PathType::Prefix]
                    .into_iter()
                    .flat_map(|kind| state.claims().claimants(&path.path, kind));
                let other = claimants.filter(|other| other.name != claim.name).find(|other| {
                    let object = self.objects.get(&other.object());
                    // One whose newest version is closed may have no other.
                    let object = object.and_then(|slot| slot.in_use().or_else(|| slot.newest()));
                    matches!(object, Some(Object::Ingress(other)) if !says_canary(other))
                });
                if let Some(other) = other {
                    let (host, path) = (host.as_str(), shown(&path.path));
                    return Err(format!(
                        "host \"{host}\" and path {path} is already defined in ingress {}",
                        other.name
                    ));
                }
            }
        }
        Ok(())
    }
}

fn says_canary(ingress: &Ingress) -> bool {
    let mut keys = ingress.metadata.annotations.keys();
    keys.any(|key| key.strip_prefix(PREFIX) == Some("canary"))
}

/// A path with special characters whose type is compared literally (`strict-validate-path-type`).
fn odd_path(ingress: &Ingress) -> Option<(&str, &'static str)> {
    let paths = ingress.spec.rules.iter().flat_map(|rule| &rule.http).flat_map(|http| &http.paths);
    let mut odd = paths.filter_map(|path| {
        let kind = match path.path_type {
            Some(IngressPathType::Exact) => "Exact",
            Some(IngressPathType::Prefix) => "Prefix",
            Some(IngressPathType::ImplementationSpecific) | None => return None,
        };
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
        (!path.path.bytes().all(is_plain)).then_some((path.path.as_str(), kind))
    });
    odd.next()
}
