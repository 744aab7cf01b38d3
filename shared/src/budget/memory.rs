//! Determines how much memory this process may use: the limit of its control group, else the machine's memory.

use std::fs;
use std::path::Path;

/// The control group hierarchies by version: the folder, and the file with a group's limit.
const TREES: [(&str, &str); 2] =
    [("sys/fs/cgroup", "memory.max"), ("sys/fs/cgroup/memory", "memory.limit_in_bytes")];
/// Default if the memory is unknown.
const UNKNOWN: u64 = 1 << 30;

/// Bytes that this process may use. Beyond that, the kernel kills it.
pub fn memory() -> u64 {
    memory_below(Path::new("/"))
}

/// Parses a number of bytes: `1073741824`, `1Gi`, `512Mi`, `64Ki`.
///
/// # Errors
/// What was expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let unit = |suffix: &str, bits: u32| Some((text.strip_suffix(suffix)?, bits));
    let (number, bits) =
        unit("Ki", 10).or_else(|| unit("Mi", 20)).or_else(|| unit("Gi", 30)).unwrap_or((text, 0));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << bits));
    bytes.ok_or_else(|| format!("expected bytes such as 512Mi, 1Gi or 65536, got {text:?}"))
}

/// Minimum memory of a plane. With less, its budgets would refuse everything, or limit nothing.
const LEAST: u64 = 16 << 20;

/// Parses the memory of a process.
///
/// # Errors
/// As [`parse_bytes`].
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let is_enough = bytes >= LEAST;
    is_enough.then_some(bytes).ok_or_else(|| format!("expected {}Mi at least, got {text:?}", LEAST >> 20))
}

fn memory_below(root: &Path) -> u64 {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let groups = read("proc/self/cgroup");
    let limits = TREES.iter().flat_map(|(tree, file)| {
        let group = groups.lines().find_map(|line| group_of(line, tree)).unwrap_or_default();
        // The limits of parent groups apply, too; in a container the own group is the visible root.
        let above = Path::new(group).ancestors().map(|group| root.join(tree).join(group).join(file));
        above.collect::<Vec<_>>()
    });
    let limits = limits.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    let machine = read("proc/meminfo").lines().find_map(total);
    limits.chain(machine).min().unwrap_or(UNKNOWN)
}

/// The group that a line of `/proc/self/cgroup` names, if it belongs to this hierarchy: `0::/a/b`, or `4:memory:/a/b`
/// in version 1.
fn group_of<'a>(line: &'a str, tree: &str) -> Option<&'a str> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    let is_ours = match tree.ends_with("memory") {
        true => controllers.split(',').any(|controller| controller == "memory"),
        false => controllers.is_empty(),
    };
    is_ours.then(|| group.trim_start_matches('/'))
}

/// `MemTotal:  24684096 kB`.
fn total(line: &str) -> Option<u64> {
    let kilobytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim();
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{UNKNOWN, memory, memory_below, parse_bytes, parse_memory};

    fn machine(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_below(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\n");

    #[test]
    fn the_least_of_all_groups_above_and_the_machine() {
        let own = ("proc/self/cgroup", "0::/kube/pod\n");
        let pod = ("sys/fs/cgroup/kube/pod/memory.max", "2147483648\n");
        assert_eq!(machine(&[MEMINFO, own, pod]), 2 << 30);
        let above = ("sys/fs/cgroup/kube/memory.max", "1073741824\n");
        assert_eq!(machine(&[MEMINFO, own, pod, above]), 1 << 30);
        let free = ("sys/fs/cgroup/kube/pod/memory.max", "max\n");
        assert_eq!(machine(&[MEMINFO, own, free]), 16_000_000 * 1024);
    }

    #[test]
    fn in_a_container_the_own_group_is_the_root() {
        let root = ("sys/fs/cgroup/memory.max", "536870912\n");
        assert_eq!(machine(&[MEMINFO, ("proc/self/cgroup", "0::/\n"), root]), 512 << 20);
        let unseen = ("proc/self/cgroup", "0::/kubepods/burstable/pod1\n");
        assert_eq!(machine(&[MEMINFO, unseen, root]), 512 << 20);
    }

    #[test]
    fn version_one_of_control_groups() {
        let own = ("proc/self/cgroup", "5:cpu,memory:/a/b\n0::/\n");
        let limit = ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "1048576\n");
        // Version 1's value for no limit.
        let free = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine(&[MEMINFO, own, limit, free]), 1 << 20);
        assert_eq!(machine(&[MEMINFO, own, free]), 16_000_000 * 1024);
    }

    #[test]
    fn bytes_are_said_with_a_unit_or_without() {
        for (text, bytes) in
            [("0", 0), ("65536", 1 << 16), ("64Ki", 1 << 16), ("3Mi", 3 << 20), ("2Gi", 2 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "Mi", "1.5Gi", "-1", "1G", "1 Mi", "99999999999Gi"] {
            assert!(parse_bytes(text).unwrap_err().contains("512Mi"), "{text}");
        }
        assert_eq!((parse_memory("16Mi"), parse_memory("1Gi")), (Ok(16 << 20), Ok(1 << 30)));
        for text in ["0", "1", "16777215", "16383Ki"] {
            assert_eq!(parse_memory(text), Err(format!("expected 16Mi at least, got {text:?}")));
        }
    }

    #[test]
    fn where_nothing_is_said_a_gigabyte_is_assumed() {
        assert_eq!(machine(&[]), UNKNOWN);
        assert!(Path::new("/proc/meminfo").exists());
        assert!(memory() > 0);
    }
}
