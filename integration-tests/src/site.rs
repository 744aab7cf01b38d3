//! A small installation: objects somewhere, a control plane that reads them, a proxy that serves them.

use std::net::SocketAddr;

use serde_json::Value;

use crate::addresses;
use crate::api::Api;
use crate::cluster::Cluster;
use crate::objects;
use crate::{ControlPlane, DataPlane, Folder, Origin, Source};

/// The namespace of everything in a [`FolderSite`].
pub const NAMESPACE: &str = "default";

/// Both planes over a folder of manifests. Origins are on loopback.
#[derive(Debug)]
pub struct FolderSite {
    /// The proxy.
    pub proxy: DataPlane,
    /// The control plane.
    pub control: ControlPlane,
    /// The manifests.
    pub folder: Folder,
}

impl FolderSite {
    /// With an IngressClass and further objects.
    pub async fn start(objects: &[Value]) -> Self {
        Self::start_with(objects, &[], &[]).await
    }

    /// With further flags of the control plane and of the proxy.
    pub async fn start_with(objects: &[Value], control: &[&str], proxy: &[&str]) -> Self {
        let folder = Self::folder(objects);
        let control = ControlPlane::start_with(&Source::folder(&folder), control).await;
        let proxy = DataPlane::start_with(control.listen(), proxy).await;
        Self { proxy, control, folder }
    }

    /// The folder of one, without planes.
    pub fn folder(objects: &[Value]) -> Folder {
        let folder = Folder::with(objects);
        folder.apply(&objects::ingress_class());
        objects::ballast(NAMESPACE).iter().for_each(|object| folder.apply(object));
        folder
    }

    /// The same with two Services, `one` and `two`, that have an endpoint each, and a host that leads to the first.
    pub fn folder_of_two(host: &str) -> (Folder, [Origin; 2]) {
        let folder = Self::folder(&[]);
        let origins = ["one", "two"].map(|name| origin(&folder, name));
        folder.apply(&ingress("web", host, &[("/", "one")]));
        (folder, origins)
    }

    /// An origin with a Service of its name.
    pub async fn origin(&self, name: &str) -> Origin {
        origin(&self.folder, name)
    }

    /// Makes an Ingress `NAME` that sends a host to a Service, and waits until it is served.
    pub async fn route(&self, name: &str, host: &str, origin: &Origin) {
        self.folder.apply(&ingress(name, host, &[("/", origin.name())]));
        self.proxy.serves(host, "/", origin.name()).await;
    }
}

/// An EndpointSlice of a Service of a [`FolderSite`].
pub fn slice(service: &str, endpoints: &[SocketAddr]) -> Value {
    objects::slice(NAMESPACE, service, "1", endpoints)
}

fn origin(folder: &Folder, name: &str) -> Origin {
    let origin = Origin::start(name);
    folder.apply(&objects::service(NAMESPACE, name));
    folder.apply(&slice(name, &[origin.address()]));
    origin
}

/// An Ingress of a [`FolderSite`].
pub fn ingress(name: &str, host: &str, paths: &[(&str, &str)]) -> Value {
    objects::ingress(NAMESPACE, name, host, paths)
}

/// Both planes over one namespace of a real cluster. Origins are on an address that an EndpointSlice may carry.
#[derive(Debug)]
pub struct ClusterSite {
    /// The proxy.
    pub proxy: DataPlane,
    /// The control plane.
    pub control: ControlPlane,
    /// The API server.
    pub api: Api,
    /// The namespace of everything in it.
    pub namespace: String,
}

impl ClusterSite {
    /// In a namespace of the cluster that the tests of a binary share.
    pub async fn shared(namespace: &str) -> Self {
        Self::start(Cluster::shared().await, namespace).await
    }

    /// In a namespace of a cluster.
    pub async fn start(cluster: &Cluster, namespace: &str) -> Self {
        Self::start_by(cluster, namespace, cluster.port()).await
    }

    /// In a namespace of a cluster that the control plane reaches by another port: a relay's.
    pub async fn start_by(cluster: &Cluster, namespace: &str, port: u16) -> Self {
        let source = Source::Cluster {
            kubeconfig: cluster.kubeconfig_by(port),
            namespace: Some(namespace.to_owned()),
        };
        Self::start_with(cluster, namespace, &source, &[]).await
    }

    /// In a namespace of a cluster that a control plane with further flags reads by a source of its own.
    ///
    /// # Panics
    /// If origins can have no address that an EndpointSlice may carry: a test that is skipped says nothing.
    pub async fn start_with(cluster: &Cluster, namespace: &str, source: &Source, further: &[&str]) -> Self {
        addresses::routable().unwrap_or_else(|problem| panic!("this cannot be tested here: {problem}"));
        let api = cluster.api().await;
        api.apply(&objects::namespace(namespace)).await;
        api.apply_all(&objects::ballast(namespace)).await;
        let control = ControlPlane::start_with(source, further).await;
        let proxy = DataPlane::start(control.listen()).await;
        Self { proxy, control, api, namespace: namespace.to_owned() }
    }

    /// An origin without any object.
    ///
    /// # Panics
    /// If it can have no address.
    pub async fn bare_origin(&self, name: &str) -> Origin {
        Origin::at(name, addresses::routable().expect("it was there at the start"))
    }

    /// An origin with a Service of its name.
    pub async fn origin(&self, name: &str) -> Origin {
        let origin = self.bare_origin(name).await;
        self.api.apply(&self.service(name)).await;
        self.api.apply(&self.slice(name, &[origin.address()])).await;
        origin
    }

    /// Makes an Ingress `NAME` that sends a host to a Service, and waits until it is served.
    pub async fn route(&self, name: &str, host: &str, origin: &Origin) {
        self.api.apply(&self.ingress(name, host, &[("/", origin.name())])).await;
        self.proxy.serves(host, "/", origin.name()).await;
    }

    /// A Service here.
    pub fn service(&self, name: &str) -> Value {
        objects::service(&self.namespace, name)
    }

    /// An EndpointSlice here.
    pub fn slice(&self, service: &str, endpoints: &[SocketAddr]) -> Value {
        objects::slice(&self.namespace, service, "1", endpoints)
    }

    /// An Ingress here.
    pub fn ingress(&self, name: &str, host: &str, paths: &[(&str, &str)]) -> Value {
        objects::ingress(&self.namespace, name, host, paths)
    }
}
