//! The kinds of objects that are read: one table, and what follows from it.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    ConfigMap, EndpointSlice, Ingress, IngressClass, Metadata, Namespace, ObjectRef, Secret, Service,
};

/// Something that is done with the type of a kind.
pub trait OfKind {
    /// What comes of it.
    type Output;

    /// Does it; `wrap` makes an object of the type.
    fn of<T: DeserializeOwned>(self, wrap: fn(Arc<T>) -> Object) -> Self::Output;
}

/// Writes the two enums and all that depends on nothing but the row of a kind: its name, the API version that is read,
/// the collection's name in paths, its name in keys and of tasks, whether its objects live in namespaces.
macro_rules! kinds {
    ($($kind:ident: $api_version:literal, $plural:literal, $lower:literal, $is_namespaced:literal;)*) => {
        /// What kind of object something is.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs, reason = "Kubernetes' names")]
        pub enum ObjectKind {
            $($kind,)*
        }

        impl ObjectKind {
            /// All that are read.
            pub const ALL: [Self; [$($plural),*].len()] = [$(Self::$kind),*];

            /// Kubernetes' name of the kind.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }

            /// That in lower case.
            pub fn lower(self) -> &'static str {
                match self {
                    $(Self::$kind => $lower,)*
                }
            }

            /// The API version that is read.
            pub fn api_version(self) -> &'static str {
                match self {
                    $(Self::$kind => $api_version,)*
                }
            }

            /// What its objects are called in paths.
            pub fn plural(self) -> &'static str {
                match self {
                    $(Self::$kind => $plural,)*
                }
            }

            /// Whether its objects live in namespaces.
            pub fn is_namespaced(self) -> bool {
                match self {
                    $(Self::$kind => $is_namespaced,)*
                }
            }

            /// Does something with the type of the kind.
            pub fn with<F: OfKind>(self, what: F) -> F::Output {
                match self {
                    $(Self::$kind => what.of::<$kind>(Object::$kind),)*
                }
            }
        }

        /// One object of a kind that is read.
        #[derive(Clone, PartialEq, Debug)]
        #[allow(missing_docs, reason = "Kubernetes' names")]
        pub enum Object {
            $($kind(Arc<$kind>),)*
        }

        impl Object {
            /// Its kind.
            pub fn kind(&self) -> ObjectKind {
                match self {
                    $(Self::$kind(_) => ObjectKind::$kind,)*
                }
            }

            /// Its metadata.
            pub fn metadata(&self) -> &Metadata {
                match self {
                    $(Self::$kind(it) => &it.metadata,)*
                }
            }

            /// Its metadata, to be changed at the price of a copy where others hold the object.
            pub fn metadata_mut(&mut self) -> &mut Metadata {
                match self {
                    $(Self::$kind(it) => &mut Arc::make_mut(it).metadata,)*
                }
            }

            /// Its fields.
            pub(super) fn fields(&self) -> serde_json::Result<Value> {
                match self {
                    $(Self::$kind(it) => serde_json::to_value(&**it),)*
                }
            }
        }
    };
}

kinds! {
    Ingress: "networking.k8s.io/v1", "ingresses", "ingress", true;
    IngressClass: "networking.k8s.io/v1", "ingressclasses", "ingressclass", false;
    Service: "v1", "services", "service", true;
    EndpointSlice: "discovery.k8s.io/v1", "endpointslices", "endpointslice", true;
    Secret: "v1", "secrets", "secret", true;
    ConfigMap: "v1", "configmaps", "configmap", true;
    Namespace: "v1", "namespaces", "namespace", false;
}

impl ObjectKind {
    /// The kind of that name and API version, if it is one that is read.
    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == kind && it.api_version() == api_version)
    }
}

impl Object {
    /// Which object it is.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef { kind: self.kind(), name: self.metadata().object_name() }
    }
}
