//! What decides on every host: an IngressClass and the fleet's ConfigMap, which come, change and go as all else does.

use control_plane::sim::SETTINGS;
use serde_json::Value;
use shared::kind::{Kind, ResourceKey};
use shared::resource::{Resource, SETTINGS_KEY, Settings};
use shared::version::Root;

use super::cluster::{class, settings};
use super::*;

/// The class that some Ingresses name.
pub(super) const CLASS: &str = "web";

/// Whether the Ingress of a host names the class. The others have the annotation.
pub(super) fn is_of_class(host: usize) -> bool {
    host >= 3
}

impl World {
    /// One that begins with the class.
    pub(super) fn with_fleet(seed: u64) -> Self {
        let mut world = Self { has_fleet: true, ..Self::new(seed) };
        world.cluster.put(ObjectKind::IngressClass, CLASS, class(true));
        world
    }

    pub(super) fn edit_fleet(&mut self) {
        let Self { rng, cluster, .. } = self;
        match rng.u8(..8) {
            0..=1 => cluster.delete(ObjectKind::IngressClass, CLASS),
            2..=3 => cluster.put(ObjectKind::IngressClass, CLASS, class(rng.u8(..4) > 0)),
            4 => cluster.delete(ObjectKind::ConfigMap, SETTINGS),
            5 => cluster.put(ObjectKind::ConfigMap, SETTINGS, settings(None)),
            _ => cluster.put(ObjectKind::ConfigMap, SETTINGS, settings(Some(rng.u8(1..4)))),
        }
    }

    /// Once all is settled, what exists decides, unless a version is pinned.
    pub(super) fn check_fleet(&self) {
        if self.cluster.pin_revision().is_some() {
            return;
        }
        let controller = self.cluster.get(ObjectKind::IngressClass, CLASS);
        let is_ours = controller.map(|it| it["spec"] == class(true)["spec"]);
        for (number, host) in self.hosts.iter().enumerate() {
            let name = format!("i{number}");
            let ingress = self.cluster.get(ObjectKind::Ingress, &name);
            let is_routed = self.offers(Kind::Route, &format!("ingress/default/{name}/{host}")).is_some();
            match ingress {
                None => assert!(!is_routed, "{host}: its Ingress is gone"),
                Some(_) if is_of_class(number) && is_ours == Some(false) => {
                    assert!(!is_routed, "{host} is another controller's");
                }
                // Which Ingresses a deleted class is kept for depends on who saw what.
                Some(_) if is_of_class(number) && is_ours.is_none() => {}
                Some(it) => assert!(is_routed || !is_good(it), "{host} is not served"),
            }
        }
        if let Some(map) = self.cluster.get(ObjectKind::ConfigMap, SETTINGS) {
            let timeout = map["data"]["proxy-read-timeout"].as_str().map(|it| it.parse().expect("a number"));
            assert_eq!(self.settings().defaults.proxy_read_timeout, timeout);
        }
    }

    /// A class of ours and a ConfigMap with data go, and all that is served stays, in replicas that start later, too.
    pub(super) fn delete_fleet(&mut self) {
        let before = [self.config(), self.compiled()];
        let others =
            self.cluster.get(ObjectKind::IngressClass, CLASS).filter(|it| it["spec"] != class(true)["spec"]);
        if others.is_none() {
            self.cluster.delete(ObjectKind::IngressClass, CLASS);
        }
        self.cluster.delete(ObjectKind::ConfigMap, SETTINGS);
        self.settle();
        assert_eq!([self.config(), self.compiled()], before, "{}", self.state());
        (0..NODES).for_each(|at| self.restart(at));
        self.settle();
        assert_eq!([self.config(), self.compiled()], before, "{}", self.state());
    }

    /// They come again, and decide anew.
    pub(super) fn create_fleet(&mut self) {
        self.cluster.put(ObjectKind::IngressClass, CLASS, class(self.rng.bool()));
        self.cluster.put(ObjectKind::ConfigMap, SETTINGS, settings(None));
        self.settle();
        self.check_fleet();
    }

    /// What the replica that started last offers.
    fn offers(&self, kind: Kind, key: &str) -> Option<Resource> {
        let fresh = self.nodes.last().expect("there are some");
        let (_, snapshot) = fresh.replica.offers(kind.lane());
        let entry = snapshot.get(&ResourceKey::new(kind, key))?;
        Some(Resource::decode(kind, &entry.body).expect("a resource"))
    }

    fn settings(&self) -> Settings {
        match self.offers(Kind::Settings, SETTINGS_KEY) {
            Some(Resource::Settings(settings)) => settings,
            other => panic!("expected settings, got {other:?}"),
        }
    }

    pub(super) fn config(&self) -> Root {
        self.nodes.last().expect("there are some").replica.offers(Lane::Config).1.root()
    }

    /// What it would offer if nothing were pinned.
    pub(super) fn compiled(&self) -> Root {
        self.nodes.last().expect("there are some").replica.compiled()
    }
}

/// Whether it is not rejected.
fn is_good(ingress: &Value) -> bool {
    ingress["spec"]["rules"][0]["http"]["paths"].as_array().is_some_and(|paths| paths.len() == 1)
}
