//! What a control plane would say of manifests. Nothing is started, asked or written.

use std::collections::BTreeSet;

use shared::clock;
use shared::delta::Delta;
use shared::kind::ResourceKey;

use super::flags;
use crate::announce;
use crate::args::Args;
pub use crate::compile::allowed::WITHOUT_SNIPPETS;
use crate::compile::settings::ALL_PATHS;
use crate::event::Event;
use crate::index::Commit;
use crate::manifests::once::Manifests;
use crate::objects::{ObjectKind, ObjectRef};
use crate::placement::Report;
use crate::problem::{Problem, Severity};
use crate::reference::FORBIDDEN;

/// The findings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Problems of objects and files, the worst first.
    pub problems: Vec<Problem>,
    /// Number of Ingresses.
    pub ingresses: usize,
    /// Number of those that this control plane would serve, or reject.
    pub ours: usize,
    /// Number of those that name no class: a cluster may not serve them.
    pub classless: usize,
    /// API version and kind of objects that are not read.
    pub ignored: BTreeSet<String>,
    /// What would be sent to proxies.
    pub config: Delta,
    /// Of it, what changes without a new version.
    pub live: Delta,
}

/// The object that a resource is made of. `None`: it is the fleet's, a host's, or shared by certificates. `live`: the
/// resources of the LIVE lane.
pub fn owner(key: &ResourceKey, live: &Delta) -> Option<ObjectRef> {
    announce::owner(key, |key| Some(live.up.iter().find(|it| it.key == *key)?.body.clone()))
}

impl Checked {
    /// Whether something is refused: an object is rejected, or what an annotation or a setting guards answers 503 or
    /// 403. What waits for an object that is not among the manifests is not: Secrets rarely are.
    pub fn is_refused(&self) -> bool {
        self.problems.iter().filter(|problem| problem.severity < Severity::Overridden).any(|problem| {
            announce::is_told(problem)
                || [ALL_PATHS, FORBIDDEN].iter().any(|end| problem.reason.ends_with(end))
        })
    }
}

/// Compiles manifests as a control plane with these flags does.
///
/// # Errors
/// If the flags contradict each other.
pub fn check(args: &Args, manifests: Manifests) -> anyhow::Result<Checked> {
    flags::fit(args)?;
    let Manifests { events, ignored } = manifests;
    let of_ingresses = events.iter().filter_map(Event::object).filter(is_ingress);
    let ingresses = of_ingresses.collect::<BTreeSet<_>>().len();
    let mut index = flags::index(args);
    index.set_time(clock::wall());
    events.into_iter().for_each(|event| index.apply(event));
    index.lists_complete();
    let Commit { reports, config, live, .. } = index.commit();
    let compiled = reports.iter().filter(|(_, report)| matches!(report, Report::Compiled(_)));
    let ours: Vec<_> = compiled.map(|(object, _)| object).filter(|object| is_ingress(object)).collect();
    let classless = ours.iter().filter(|object| index.is_classless(&object.name)).count();
    let mut problems: Vec<_> = index.problems().values().flat_map(|all| all.iter().cloned()).collect();
    problems.sort_by(|a, b| (a.severity, a).cmp(&(b.severity, b)));
    Ok(Checked { ours: ours.len(), classless, problems, ingresses, ignored, config, live })
}

fn is_ingress(object: &ObjectRef) -> bool {
    object.kind == ObjectKind::Ingress
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn checked(text: &str) -> Checked {
        let args = Args::try_parse_from(["firth-control-plane", "--manifests", "-"]).unwrap();
        check(&args, Manifests::of_texts([("-".to_owned(), text.to_owned())])).unwrap()
    }

    fn ingress(name: &str, more: &str) -> String {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}{more}}}\n\
             spec: {{ingressClassName: nginx, defaultBackend: {{service: {{name: one, port: {{number: 80}}}}}}}}\n"
        )
    }

    fn annotated(name: &str, annotation: &str) -> String {
        ingress(name, &format!(", annotations: {{nginx.ingress.kubernetes.io/{annotation}}}"))
    }

    #[test]
    fn what_would_be_refused_is_told_first() {
        const SERVICE: &str =
            "---\napiVersion: v1\nkind: Service\nmetadata: {name: one}\nspec: {ports: [{port: 80}]}\n";
        let fine = SERVICE.to_owned() + &ingress("fine", "") + "---\napiVersion: apps/v1\nkind: Deployment\n";
        let told = checked(&fine);
        assert_eq!((told.is_refused(), told.ingresses, told.ours), (false, 1, 1), "{told:?}");
        assert_eq!(told.ignored.iter().collect::<Vec<_>>(), ["apps/v1 Deployment"]);

        let other = ingress("other", "").replace("Name: nginx", "Name: other");
        let odd =
            fine + &other + &annotated("odd", "limit-rps: ten") + &annotated("typo", "whitelist: 10.0.0.0/8");
        let told = checked(&odd);
        assert_eq!((told.is_refused(), told.ingresses, told.ours), (true, 4, 3), "{told:?}");
        let first = &told.problems[0];
        assert_eq!(
            (&*first.object.to_string(), first.severity.as_str()),
            ("Ingress default/odd", "rejected")
        );
        assert!(told.problems.iter().any(|it| it.reason.contains("allowlist-source-range")), "{told:?}");
    }

    #[test]
    fn what_answers_503_is_refused() {
        let denied = checked(&annotated("web", "auth-type: magic"));
        assert!(denied.is_refused(), "{denied:?}");
        for (annotation, secret) in
            [("auth-type: basic", "auth-secret: users"), ("auth-tls-secret: default/ca", "x: y")]
        {
            let annotations = format!("{annotation}, nginx.ingress.kubernetes.io/{secret}");
            let missing = checked(&annotated("web", &annotations));
            let until = |it: &Problem| it.reason.contains("does not exist: until it does, all ");
            assert!(!missing.is_refused() && missing.problems.iter().any(until), "{missing:?}");
        }
        let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ingress-nginx, name: ingress-nginx-controller}\n\
                        data: {enable-modsecurity: \"true\"}\n";
        let guarded = checked(settings);
        assert!(guarded.is_refused(), "{guarded:?}");
    }
}
