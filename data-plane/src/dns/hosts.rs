//! The hosts file (hosts(5)).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Instant;

use super::Watched;

/// Addresses by name, reread when the file changes.
#[derive(Debug)]
pub(crate) struct Hosts {
    file: Watched,
    names: HashMap<Box<str>, Vec<IpAddr>>,
}

impl Hosts {
    /// The hosts file of this machine.
    pub(crate) fn of_system() -> Self {
        Self::of_file("/etc/hosts".into())
    }

    pub(crate) fn of_file(file: PathBuf) -> Self {
        Self { file: Watched::new(file), names: HashMap::new() }
    }

    /// The addresses of a name; `None`: not in the file. `localhost` is always loopback (RFC 6761).
    pub(crate) fn addresses(&mut self, name: &str, now: Instant) -> Option<Vec<IpAddr>> {
        if self.file.is_written(now)
            && let Ok(text) = self.file.read()
        {
            self.names = read(&text);
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let loopback = || (name == "localhost").then(|| vec![Ipv4Addr::LOCALHOST.into()]);
        self.names.get(name.as_str()).cloned().or_else(loopback)
    }
}

fn read(text: &str) -> HashMap<Box<str>, Vec<IpAddr>> {
    let mut names: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split_once('#').map_or(line, |(line, _)| line);
        let mut words = line.split_ascii_whitespace();
        // An unreadable line does not affect the others; an IPv6 address with a zone is not supported.
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        for name in words {
            let addresses = names.entry(name.to_ascii_lowercase().into()).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shared::clock;

    use super::*;
    use crate::dns::LOOK;

    #[test]
    fn names_have_the_addresses_of_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let begun = clock::now();
        let mut hosts = Hosts::of_file(path.clone());
        assert_eq!(hosts.addresses("one", begun), None);
        assert_eq!(hosts.addresses("Localhost.", begun), Some(vec![[127, 0, 0, 1].into()]));
        fs::write(
            &path,
            "# a\n10.0.0.1\tOne one.test # two\n10.0.0.2 one\n10.0.0.1 one\n:: x y z\nfe80::1%lo0 w\n?\n",
        )
        .unwrap();
        let later = begun + LOOK;
        assert_eq!(hosts.addresses("one.", later), Some(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]));
        assert_eq!(hosts.addresses("ONE.test", later), Some(vec![[10, 0, 0, 1].into()]));
        assert!(["two", "w", "?"].iter().all(|name| hosts.addresses(name, later).is_none()));
    }
}
