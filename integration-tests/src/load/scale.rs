//! The size of an installation, and a folder of manifests of that size.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use test_kit::certificates;

use crate::Folder;
use crate::objects::{self, Edit as _};

/// The folder of all Ingresses, below that of everything else: so all of them can be replaced in one step.
pub const ROUTES: &str = "routes";
/// The namespace of everything.
pub const NAMESPACE: &str = "default";
/// Addresses of one slice at most, as Kubernetes' own controller has it.
const SLICE: usize = 100;
/// From here on goals are those of the large reference scale.
const LARGE: usize = 5_000;

/// A size. Services have equally many endpoints, and an Ingress with a host of its own each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Services, and Ingresses.
    pub services: usize,
    /// Endpoints of all of them together.
    pub endpoints: usize,
    /// Proxies.
    pub proxies: usize,
    /// Ingresses with a certificate of their own.
    pub certificates: usize,
}

impl Scale {
    /// The small reference: 1,000 Services, 10,000 endpoints, 100 proxies.
    pub const S0: Self = Self { services: 1_000, endpoints: 10_000, proxies: 100, certificates: 0 };
    /// The large one, ten times that.
    pub const S1: Self = Self { services: 10_000, endpoints: 100_000, proxies: 1_000, certificates: 0 };

    /// Whether goals are those of [`Self::S1`].
    pub fn is_large(&self) -> bool {
        self.services >= LARGE
    }

    /// Writes the manifests, one object a file; what everybody needs is among them.
    ///
    /// # Panics
    /// If the folder cannot be written to.
    pub fn write(&self, folder: &Folder) {
        folder.apply(&objects::ingress_class());
        folder.apply(&settings(0));
        folder.replace_part(ROUTES, (0..self.services).map(|number| self.ingress(number)));
        let mut address = u32::from(Ipv4Addr::new(10, 0, 0, 0));
        for number in 0..self.services {
            let name = name(number);
            folder.apply(&objects::service(NAMESPACE, &name));
            // The rest of the division goes to the first ones.
            let more = usize::from(number < self.endpoints % self.services);
            let endpoints: Vec<SocketAddr> = (0..self.endpoints / self.services + more)
                .map(|_| {
                    address += 1;
                    (Ipv4Addr::from_bits(address), 8080).into()
                })
                .collect();
            for (part, slice) in endpoints.chunks(SLICE).enumerate() {
                folder.apply(&objects::slice(NAMESPACE, &name, &part.to_string(), slice));
            }
        }
        for number in 0..self.certificates.min(self.services) {
            let (certificate, key) = certificates::self_signed(&[&host(number)]);
            folder.apply(&objects::tls_secret(NAMESPACE, &name(number), &certificate, &key));
        }
    }

    /// The Ingress of a Service.
    pub fn ingress(&self, number: usize) -> Value {
        let (name, host) = (name(number), host(number));
        let ingress = objects::ingress(NAMESPACE, &name, &host, &[("/", &name)]);
        match number < self.certificates {
            true => ingress.with("/spec/tls", json!([{"hosts": [host], "secretName": name}])),
            false => ingress,
        }
    }

    /// The same in another version: what its requests wait for endpoints.
    pub fn changed_ingress(&self, number: usize, turn: usize) -> Value {
        self.ingress(number).annotated("proxy-read-timeout", &(61 + turn).to_string())
    }
}

/// The fleet's settings in a version: each one changes a default of all Ingresses, and has all of them judged and compiled
/// anew.
pub fn settings(turn: usize) -> Value {
    let data = json!({
        "proxy-read-timeout": (60 + turn).to_string(),
        "annotation-value-word-blocklist": format!("nobody-says-{turn}"),
    });
    objects::config_map("ingress-nginx", "ingress-nginx-controller", data)
}

fn name(number: usize) -> String {
    format!("s{number:05}")
}

fn host(number: usize) -> String {
    format!("s{number:05}.test")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::load::Editor;

    #[test]
    fn a_folder_has_what_was_asked_for() {
        let scale = Scale { services: 3, endpoints: 301, proxies: 1, certificates: 2 };
        let folder = Folder::new();
        scale.write(&folder);
        let files = |folder: &Path| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let all = files(folder.path()).chain(files(&folder.path().join(ROUTES)));
        let texts: Vec<_> =
            all.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).unwrap()).collect();
        let count = |what: &str| texts.iter().map(|text| text.matches(what).count()).sum::<usize>();
        assert_eq!(count(r#""kind":"Service","#), 3);
        assert_eq!(count(r#""kind":"Ingress","#), 3);
        assert_eq!((count(r#""kind":"Secret","#), count("secretName")), (2, 2));
        assert_eq!(count(r#""addresses""#), 301);
        assert_eq!(Editor::open(folder.path(), 1.0).unwrap().slices(), 4, "101 endpoints are two slices");
        assert_ne!(scale.changed_ingress(0, 1), scale.changed_ingress(0, 2));
        assert!(Scale::S1.is_large() && !Scale::S0.is_large());
    }
}
