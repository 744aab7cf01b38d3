//! The table of supported kinds, and what is derived from it.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    ConfigMap, EndpointSlice, Ingress, IngressClass, Metadata, Namespace, ObjectRef, Secret, Service,
};

/// An operation that is generic over the type of a kind.
pub trait OfKind {
    /// Its result.
    type Output;

    /// Runs it; `wrap` makes an object of the type.
    fn of<T: DeserializeOwned>(self, wrap: fn(Arc<T>) -> Object) -> Self::Output;
}

/// Generates the two enums, and all that depends only on the row of a kind: its name, its API version, the collection's
/// name in paths, its name in keys and of tasks, whether it is namespaced.
macro_rules! kinds {
    ($($kind:ident: $api_version:literal, $plural:literal, $lower:literal, $is_namespaced:literal;)*) => {
        /// The kind of an object.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs, reason = "Kubernetes' names")]
        pub enum ObjectKind {
            $($kind,)*
        }

        impl ObjectKind {
            /// All supported kinds.
            pub const ALL: [Self; [$($plural),*].len()] = [$(Self::$kind),*];

            /// Kubernetes' name of the kind.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }

            /// The same in lower case.
            pub fn lower(self) -> &'static str {
                match self {
                    $(Self::$kind => $lower,)*
                }
            }

            /// The supported API version.
            pub fn api_version(self) -> &'static str {
                match self {
                    $(Self::$kind => $api_version,)*
                }
            }

            /// The collection's name in paths.
            pub fn plural(self) -> &'static str {
                match self {
                    $(Self::$kind => $plural,)*
                }
            }

            /// Whether it is namespaced.
            pub fn is_namespaced(self) -> bool {
                match self {
                    $(Self::$kind => $is_namespaced,)*
                }
            }

            /// Runs an operation with the type of the kind.
            pub fn with<F: OfKind>(self, what: F) -> F::Output {
                match self {
                    $(Self::$kind => what.of::<$kind>(Object::$kind),)*
                }
            }
        }

        /// An object of a supported kind.
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

            /// Its metadata for modification; copies the object if it is shared.
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
    /// The kind with that name and API version, if it is supported.
    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == kind && it.api_version() == api_version)
    }
}

impl Object {
    /// Identifies the object.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef { kind: self.kind(), name: self.metadata().object_name() }
    }
}
