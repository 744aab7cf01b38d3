//! The contents of Secrets with certificates of [`test_kit::certificates`].

use shared::resource::{Authorities, BackendIdentity, Material, Resource};
use test_kit::certificates::{Authority, Own};

/// The contents of a Secret with this authority's root.
pub(crate) fn authorities(authority: &Authority) -> Authorities {
    Authorities { certificates: vec![authority.chain.last().unwrap().clone()], revocations: vec![] }
}

/// The Material of a `proxy-ssl-secret`.
pub(crate) fn identity(authority: Option<&Authority>, own: Option<&Own>) -> Resource {
    let (certificates, key) = own.map(|own| (own.chain.clone(), own.key.clone())).unwrap_or_default();
    let authorities = authority.map(authorities);
    Resource::Material(Material::BackendIdentity(BackendIdentity { authorities, certificates, key }))
}
