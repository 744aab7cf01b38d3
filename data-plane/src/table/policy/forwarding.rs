//! Which peers are trusted to report the client they act for, and what backends are told about it (as in
//! ingress-nginx).

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use shared::address::AddressSet;
use shared::policy::{ConnectionHeader, LocationPolicy, RealIp};
use shared::template::{Template, Variable};

use super::PolicyError;
use super::headers::{self, Header};

mod own;

/// What is trusted, and what is passed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarding {
    /// Peers that are trusted to report their client, if any.
    pub believed: Option<Box<AddressSet>>,
    /// Whether the host, scheme and port reported by a trusted peer are used (`use-forwarded-headers`).
    pub takes_claims: bool,
    /// X-Forwarded-For becomes the peer's list plus the peer (`compute-full-forwarded-for`).
    pub whole_list: bool,
    /// The header with the client's address, if not X-Forwarded-For.
    pub for_field: Option<Box<str>>,
    /// The header that the client's address is taken from, if not the same.
    pub address_field: Option<Box<str>>,
    /// Of its list only the last address counts.
    pub last_only: bool,
    /// Who is trusted to report clients' addresses in place of these peers, as the snippet of the host says.
    pub of_host: Option<Box<Peers>>,
    /// And as that of the location says.
    pub of_location: Option<Box<Peers>>,
    /// The header with the client's host, if not X-Forwarded-Host.
    pub host_field: Option<Box<str>>,
    /// X-Original-URI is sent.
    pub original_uri: bool,
    /// X-Request-ID is generated if the request has none.
    pub makes_id: bool,
    /// The Host header of requests to the backend.
    pub host: Option<Template>,
    /// The Connection header of requests to the backend.
    pub connection: Option<Connection>,
    /// Headers that replace the client's.
    pub fields: Box<[Header]>,
    /// A second X-Forwarded-For, behind the one that says who the client is.
    pub list: Option<Template>,
    /// Whether one of them has a group of the pattern of `rewrite-target`.
    pub has_groups: bool,
    /// Names of headers that only an auth service may set: where nobody is asked, a client's are removed.
    pub told: Box<[Bytes]>,
    /// Which header names are passed on that nginx would drop.
    pub names: Names,
}

/// Peers that are trusted to report the address of their client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peers {
    /// Themselves.
    pub believed: AddressSet,
    /// The header with the address, if not that of forwarded requests.
    pub field: Option<Box<str>>,
    /// Of its list only the last address counts.
    pub last_only: bool,
}

impl Peers {
    /// What one level of nginx' configuration says within another one, each of whose settings it inherits unless it says
    /// its own; `None`: it says nothing, or trusts nobody.
    fn inside(
        field: &'static str,
        said: Option<&RealIp>,
        outer: &Outer<'_>,
    ) -> Result<Option<Box<Self>>, PolicyError> {
        let Some(said) = said else { return Ok(None) };
        let own = match &*said.trusted {
            [] => outer.believed.cloned(),
            list => Some(trusted(field, list.iter().map(String::as_str))?),
        };
        let header = Some(&*said.header).filter(|name| !name.is_empty()).or(outer.field);
        let last_only = said.recursive.map_or(outer.last_only, |it| !it);
        Ok(own.map(|believed| Box::new(Self { believed, field: header.map(Into::into), last_only })))
    }
}

/// What is said around a level.
#[derive(Clone, Copy)]
struct Outer<'a> {
    believed: Option<&'a AddressSet>,
    field: Option<&'a str>,
    last_only: bool,
}

/// Which header names of clients are passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// Letters, digits and dashes.
    Plain,
    /// Also underscores (`enable-underscores-in-headers`).
    Underscores,
    /// Any token (`ignore-invalid-headers` off).
    Tokens,
}

impl Names {
    /// Whether a name that is a token, but not a plain name, is passed on.
    pub fn takes(self, name: &[u8]) -> bool {
        match self {
            Self::Plain => false,
            Self::Underscores => name.iter().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)),
            Self::Tokens => true,
        }
    }
}

/// The `Connection` header of requests to the backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connection {
    /// Each request has its own connection.
    Close,
    /// Explicit keep-alive, without protocol upgrades.
    KeepAlive,
}

impl Connection {
    /// The header value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::KeepAlive => "keep-alive",
        }
    }
}

impl Default for Forwarding {
    fn default() -> Self {
        Self {
            believed: None,
            takes_claims: false,
            whole_list: false,
            for_field: None,
            address_field: None,
            last_only: false,
            of_host: None,
            of_location: None,
            host_field: None,
            original_uri: false,
            makes_id: true,
            host: None,
            connection: None,
            fields: Box::default(),
            list: None,
            has_groups: false,
            told: Box::default(),
            names: Names::Plain,
        }
    }
}

impl Forwarding {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let on = |configured: Option<bool>| configured.unwrap_or(false);
        let takes_claims = on(configured.use_forwarded_headers);
        // With a PROXY header, headers are trusted only if `use-forwarded-headers` is on.
        let by_fields = on(configured.enable_real_ip) && !on(configured.use_proxy_protocol);
        let by_keys = takes_claims || by_fields;
        let said = configured.real_ip.as_ref();
        let believed = match said.filter(|it| !it.trusted.is_empty()) {
            Some(it) => Some(trusted("real_ip.trusted", it.trusted.iter().map(String::as_str))?),
            None if by_keys => Some(believed(configured)?),
            None => None,
        };
        // nginx' own defaults, where the template of ingress-nginx says nothing.
        let usual = if by_keys { None } else { Some("X-Real-IP") };
        let of_all = Outer {
            believed: believed.as_ref(),
            field: said.map(|it| &*it.header).filter(|name| !name.is_empty()).or(usual),
            last_only: !said.and_then(|it| it.recursive).unwrap_or(by_keys),
        };
        let address_field = said.and(of_all.field).map(Into::into);
        let last_only = said.is_some() && of_all.last_only;
        let of_host = Peers::inside("host_real_ip.trusted", configured.host_real_ip.as_ref(), &of_all)?;
        let around = match of_host.as_deref() {
            Some(it) => {
                Outer { believed: Some(&it.believed), field: it.field.as_deref(), last_only: it.last_only }
            }
            None => of_all,
        };
        let of_location = Peers::inside("own_real_ip.trusted", configured.own_real_ip.as_ref(), &around)?;
        let other = |configured: &Option<String>, usual: &str| {
            configured.as_deref().filter(|name| !name.eq_ignore_ascii_case(usual)).map(Into::into)
        };
        let mut fields =
            headers::compile("proxy_set_headers", configured.proxy_set_headers.as_ref(), Template::parse)?;
        fields.extend(headers::compile(
            "request_headers",
            configured.request_headers.as_ref(),
            Template::parse,
        )?);
        let (fields, list) = own::left(fields);
        let told = headers::compile("told_headers", configured.told_headers.as_ref(), Template::literal)?;
        let connection =
            configured.connection_proxy_header.map(|_| match configured.connection_proxy_header() {
                ConnectionHeader::Close => Connection::Close,
                ConnectionHeader::KeepAlive | ConnectionHeader::Unspecified => Connection::KeepAlive,
            });
        let is_group = |it: &Variable| matches!(it, Variable::Capture(_));
        let has_groups = fields.iter().any(|it| it.value.variables().any(is_group));
        Ok(Self {
            has_groups,
            believed: believed.map(Box::new),
            takes_claims,
            whole_list: takes_claims && on(configured.compute_full_forwarded_for),
            for_field: other(&configured.forwarded_for_header, "X-Forwarded-For"),
            address_field,
            last_only,
            of_host,
            of_location,
            host_field: other(&configured.forwarded_host_header, "X-Forwarded-Host"),
            original_uri: on(configured.proxy_add_original_uri_header),
            makes_id: configured.generate_request_id.unwrap_or(true),
            host: configured.upstream_vhost.as_deref().map(Template::parse),
            connection,
            fields: fields.into(),
            list,
            told: told.into_iter().map(|header| header.name).collect(),
            names: match (configured.ignore_invalid_headers, configured.enable_underscores_in_headers) {
                (Some(false), _) => Names::Tokens,
                (_, Some(true)) => Names::Underscores,
                _ => Names::Plain,
            },
        })
    }
}

/// The trusted peers. The default is all IPv4 addresses and no IPv6 address, as in ingress-nginx.
pub(in crate::table) fn believed(configured: &LocationPolicy) -> Result<AddressSet, PolicyError> {
    let list: Option<Vec<_>> =
        configured.proxy_real_ip_cidr.as_ref().map(|list| list.values.iter().map(String::as_str).collect());
    trusted("proxy_real_ip_cidr", list.unwrap_or_else(|| vec!["0.0.0.0/0"]))
}

fn trusted<'a>(
    field: &'static str,
    list: impl IntoIterator<Item = &'a str>,
) -> Result<AddressSet, PolicyError> {
    AddressSet::parse(list).map_err(|error| PolicyError { field, problem: error.to_string() })
}

/// The client in a list of addresses, as nginx determines it: the first from the right that is not trusted, or else
/// the left-most; an invalid address ends the search (`ngx_http_get_forwarded_addr`, recursive).
pub fn client(list: &[u8], peer: IpAddr, believed: &AddressSet) -> IpAddr {
    let mut client = peer;
    for item in list.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty()) {
        match address(item).filter(|_| believed.contains(client)) {
            Some(address) => client = address,
            None => break,
        }
    }
    client
}

/// An address with or without a port, an IPv6 one with or without brackets.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|it| it.ip())).ok()?;
    Some(IpAddr::to_canonical(&address))
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    fn found(list: &str, believed: &[&str]) -> String {
        let believed = AddressSet::parse(believed.iter().copied()).unwrap();
        client(list.as_bytes(), "10.0.0.5".parse().unwrap(), &believed).to_string()
    }

    #[test]
    fn the_right_most_that_is_not_believed_is_the_client() {
        let all = ["0.0.0.0/0"];
        let near = ["10.0.0.0/8", "::1"];
        for (list, believed, expected) in [
            ("1.1.1.1, 2.2.2.2", &all[..], "1.1.1.1"),
            ("1.1.1.1, 2.2.2.2", &near[..], "2.2.2.2"),
            ("1.1.1.1, 10.9.9.9,10.1.1.1", &near, "1.1.1.1"),
            ("10.9.9.9, 10.1.1.1", &near, "10.9.9.9"),
            ("1.1.1.1", &["192.0.2.0/24"], "10.0.0.5"),
            ("1.1.1.1:8080", &near, "1.1.1.1"),
            ("[2001:db8::1]:8080, [::1]", &near, "2001:db8::1"),
            ("::ffff:1.1.1.1", &near, "1.1.1.1"),
            ("", &all, "10.0.0.5"),
            (" , ,", &all, "10.0.0.5"),
            ("1.1.1.1, unknown", &all, "10.0.0.5"),
            ("1.1.1.1, <script>, 10.1.1.1", &near, "10.1.1.1"),
            ("1.1.1.1, 2001:db8::1, 3.3.3.3", &all, "2001:db8::1"),
            ("1.1.1.1,, 10.1.1.1,", &near, "1.1.1.1"),
        ] {
            assert_eq!(found(list, believed), expected, "{list:?} {believed:?}");
        }
    }

    #[test]
    fn forwarded_headers_are_not_trusted_by_default() {
        let compile = |configured: LocationPolicy| Forwarding::compile(&configured).unwrap();
        let cidr = Some(TextList { values: vec!["10.0.0.0/8".into()] });
        let configured = LocationPolicy { proxy_real_ip_cidr: cidr, ..LocationPolicy::default() };
        assert_eq!(compile(configured), Forwarding::default());
        let configured = LocationPolicy { enable_real_ip: Some(true), ..LocationPolicy::default() };
        let real_ip = compile(configured.clone());
        assert!(!real_ip.takes_claims);
        assert_eq!(*real_ip.believed.unwrap(), AddressSet::parse(["0.0.0.0/0"]).unwrap());
        let nobody = LocationPolicy { proxy_real_ip_cidr: Some(TextList::default()), ..configured.clone() };
        assert!(compile(nobody).believed.unwrap().is_empty());
        let broken = Some(TextList { values: vec!["10.0.0.0/33".into()] });
        let refused = Forwarding::compile(&LocationPolicy { proxy_real_ip_cidr: broken, ..configured });
        assert_eq!(refused.unwrap_err().field, "proxy_real_ip_cidr");
    }

    #[test]
    fn addresses_are_taken_from_where_a_snippet_says() {
        let compile = |header: &str, trusted: &[&str], recursive, keys: Option<bool>| {
            let trusted = trusted.iter().map(ToString::to_string).collect();
            let real_ip = Some(RealIp { header: header.into(), trusted, recursive });
            let configured = LocationPolicy { real_ip, enable_real_ip: keys, ..LocationPolicy::default() };
            let it = Forwarding::compile(&configured).unwrap();
            (it.believed.is_some(), it.address_field.map(String::from), it.last_only)
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(
            compile("CF-Connecting-IP", &["10.0.0.0/8"], None, None),
            (true, named("CF-Connecting-IP"), true)
        );
        assert_eq!(compile("", &["10.0.0.0/8"], Some(true), None), (true, named("X-Real-IP"), false));
        assert_eq!(
            compile("X-Client", &[], None, None),
            (false, named("X-Client"), true),
            "nobody is trusted"
        );
        assert_eq!(compile("X-Client", &[], None, Some(true)), (true, named("X-Client"), false));
        assert_eq!(compile("", &["10.0.0.0/8"], Some(false), Some(true)), (true, None, true));
        let broken = RealIp { trusted: vec!["10.0.0.0/33".into()], ..RealIp::default() };
        let configured = LocationPolicy { real_ip: Some(broken), ..LocationPolicy::default() };
        assert_eq!(Forwarding::compile(&configured).unwrap_err().field, "real_ip.trusted");
    }

    #[test]
    fn a_level_inherits_what_it_does_not_say() {
        let said = |header: &str, trusted: &[&str], recursive| {
            let trusted = trusted.iter().map(ToString::to_string).collect();
            Some(RealIp { header: header.into(), trusted, recursive })
        };
        let keys = LocationPolicy { enable_real_ip: Some(true), ..LocationPolicy::default() };
        let all = || AddressSet::parse(["0.0.0.0/0"]).unwrap();
        let near = || AddressSet::parse(["10.0.0.0/8"]).unwrap();
        let peers = |believed, field: Option<&str>, last_only| {
            Some(Box::new(Peers { believed, field: field.map(Into::into), last_only }))
        };
        let compile = |host_real_ip, own_real_ip, around: &LocationPolicy| {
            let it = Forwarding::compile(&LocationPolicy { host_real_ip, own_real_ip, ..around.clone() });
            it.map(|it| (it.of_host, it.of_location)).unwrap()
        };
        let none = LocationPolicy::default();
        assert_eq!(compile(None, None, &keys), (None, None));
        assert_eq!(compile(said("X-C", &[], None), None, &none), (None, None), "nobody is trusted");
        assert_eq!(compile(said("X-C", &[], None), None, &keys).0, peers(all(), Some("X-C"), false));
        assert_eq!(compile(said("", &["10.0.0.0/8"], Some(false)), None, &keys).0, peers(near(), None, true));
        assert_eq!(
            compile(said("", &["10.0.0.0/8"], None), None, &none).0,
            peers(near(), Some("X-Real-IP"), true)
        );
        let (of_host, of_location) =
            compile(said("X-C", &["10.0.0.0/8"], Some(true)), said("X-D", &[], None), &none);
        assert_eq!(of_host, peers(near(), Some("X-C"), false));
        assert_eq!(of_location, peers(near(), Some("X-D"), false));
        let fleets = LocationPolicy { real_ip: said("X-F", &["10.0.0.0/8"], None), ..none };
        assert_eq!(compile(None, said("", &[], Some(true)), &fleets).1, peers(near(), Some("X-F"), false));
        let broken = LocationPolicy { own_real_ip: said("", &["x"], None), ..LocationPolicy::default() };
        assert_eq!(Forwarding::compile(&broken).unwrap_err().field, "own_real_ip.trusted");
    }
}
