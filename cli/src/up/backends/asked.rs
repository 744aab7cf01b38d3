//! Services that a proxy resolves by cluster DNS names, which do not exist for a folder: those of `auth-url`. Pure.

use std::net::SocketAddr;

use control_plane::objects::called::Called;
use control_plane::objects::{EndpointSlice, Ingress, Service};

/// Annotation of an Ingress with a URL to call.
const AUTH_URL: &str = "nginx.ingress.kubernetes.io/auth-url";

/// The Service that an Ingress calls; `None`: none, or a host that DNS knows, or one that depends on the request.
pub(super) fn by(ingress: &Ingress) -> Option<Called> {
    Called::of(ingress.metadata.annotations.get(AUTH_URL)?)
}

/// The addresses of a Service that is called, from its slices.
///
/// # Errors
/// Why it has none.
pub(super) fn addresses<'a>(
    called: &Called,
    service: Option<&Service>,
    slices: impl Iterator<Item = &'a EndpointSlice>,
) -> Result<Vec<SocketAddr>, String> {
    let Called { service: name, port } = called;
    let spec = &service.ok_or_else(|| format!("Service {name} is not in the folder"))?.spec;
    if spec.kind == "ExternalName" {
        return Err(format!("Service {name} is an external name, which is not followed here"));
    }
    let listed = spec.ports.iter().find(|it| it.port == i32::from(*port));
    // For a headless Service ports are not translated: pods are called at the given port.
    let is_headless = spec.cluster_ip == "None";
    if listed.is_none() && !is_headless {
        return Err(format!("Service {name} has no port {port}"));
    }
    let mut addresses = Vec::new();
    for slice in slices {
        let named = slice.ports.iter().filter(|it| listed.is_some_and(|listed| listed.name == it.name));
        let ports: Vec<_> = match is_headless {
            true => vec![*port],
            false => named.filter_map(|it| u16::try_from(it.port?).ok()).collect(),
        };
        let ips = slice.ready().filter_map(|address| address.parse().ok());
        addresses.extend(ips.flat_map(|ip| ports.iter().map(move |port| SocketAddr::new(ip, *port))));
    }
    match addresses.is_empty() {
        true => Err(format!("Service {name} has no endpoints")),
        false => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use control_plane::objects::{Object, ObjectKind, json};
    use shared::name::ObjectName;

    use super::*;

    fn asked(url: &str) -> Option<Called> {
        let mut ingress = Ingress::default();
        ingress.metadata.annotations.insert(AUTH_URL.to_owned(), url.to_owned());
        by(&ingress)
    }

    #[test]
    fn services_of_the_cluster_are_told_from_the_rest() {
        for (url, expected) in [
            ("http://auth.sso.svc.cluster.local/verify", Some(80)),
            ("https://Auth.SSO.svc.cluster.local.", Some(443)),
            (" http://auth.sso.svc.cluster.local:9000?x=$request_uri", Some(9000)),
            ("http://auth.sso.svc.cluster.local:x/", None),
            ("http://pod.auth.sso.svc.cluster.local/", None),
            ("http://sso.svc.cluster.local/", None),
            ("http://auth.example.com/x.sso.svc.cluster.local", None),
            ("https://$host/oauth2/auth", None),
            ("auth.sso.svc.cluster.local", None),
            ("ftp://auth.sso.svc.cluster.local", None),
        ] {
            let who = asked(url);
            assert_eq!(who.as_ref().map(|it| it.port), expected, "{url}");
            if let Some(who) = who {
                assert_eq!(who.service, ObjectName::new("sso", "auth"));
                assert_eq!(who.host(), "auth.sso.svc.cluster.local");
            }
        }
    }

    fn service(spec: &str) -> Arc<Service> {
        let text = format!(r#"{{"metadata":{{"name":"auth","namespace":"sso"}},"spec":{spec}}}"#);
        match json::decode(ObjectKind::Service, &text) {
            Ok(Object::Service(service)) => service,
            other => panic!("{other:?}"),
        }
    }

    fn slice(ports: &str) -> Arc<EndpointSlice> {
        let text = format!(
            r#"{{"metadata":{{"name":"auth-1","namespace":"sso"}},"ports":{ports},"endpoints":[
                {{"addresses":["10.0.0.1"]}},{{"addresses":["10.0.0.2"],"conditions":{{"ready":false}}}}]}}"#
        );
        match json::decode(ObjectKind::EndpointSlice, &text) {
            Ok(Object::EndpointSlice(slice)) => slice,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ports_are_the_services_and_addresses_those_that_are_ready() {
        let who = asked("http://auth.sso.svc.cluster.local:9000").unwrap();
        let web = service(r#"{"ports":[{"name":"http","port":9000},{"name":"metrics","port":1}]}"#);
        let ports = slice(r#"[{"name":"metrics","port":1},{"name":"http","port":8080}]"#);
        let found = |service: Option<&Service>, slices: &[&EndpointSlice]| {
            addresses(&who, service, slices.iter().copied())
                .map(|it| it.iter().map(ToString::to_string).collect())
        };
        assert_eq!(found(Some(&web), &[&ports]), Ok(vec!["10.0.0.1:8080".to_owned()]));
        let headless = service(r#"{"clusterIP":"None"}"#);
        assert_eq!(found(Some(&headless), &[&ports]), Ok(vec!["10.0.0.1:9000".to_owned()]));
        for (service, slices, reason) in [
            (None, &[&*ports][..], "is not in the folder"),
            (Some(&web), &[], "has no endpoints"),
            (Some(&service(r#"{"ports":[{"port":80}]}"#)), &[&ports], "has no port 9000"),
            (Some(&service(r#"{"type":"ExternalName","externalName":"a.test"}"#)), &[], "an external name"),
        ] {
            let why = found(service.map(|it| &**it), slices).unwrap_err();
            assert!(why.contains(reason), "{why}");
        }
    }
}
