//! A consistent hash over endpoints: 160 points each, chained through CRC-32 (balancing.md 5.2).

/// Points that each endpoint has.
const POINTS: usize = 160;

/// Endpoints on a circle of hashes. Immutable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ring {
    /// Hash and place of the endpoint, ascending by hash.
    points: Box<[(u32, u32)]>,
}

impl Ring {
    /// Of endpoints' names (`address:port`), in any order: what a key leads to depends on the set alone.
    pub fn new<'a>(endpoints: impl IntoIterator<Item = &'a str>) -> Self {
        let mut points = Vec::new();
        for (place, endpoint) in endpoints.into_iter().enumerate() {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            let mut hash = 0u32;
            for _ in 0..POINTS {
                let mut crc = crc32fast::Hasher::new();
                crc.update(endpoint.as_bytes());
                crc.update(&hash.to_le_bytes());
                hash = crc.finalize();
                points.push((hash, place));
            }
        }
        points.sort_unstable();
        Self { points: points.into() }
    }

    /// The endpoint that a key leads to, by its place; `None` where there is none.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let hash = crc32fast::hash(key);
        let at = self.points.partition_point(|(point, _)| *point < hash);
        let (_, place) = self.points.get(at).or_else(|| self.points.first())?;
        usize::try_from(*place).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [&str; 4] = ["10.184.7.40:8080", "10.184.7.41:8080", "10.184.7.42:8080", "10.184.7.43:8080"];

    #[test]
    fn points_are_chained() {
        let ring = Ring::new([NODES[0]]);
        assert_eq!(ring.points.len(), 160);
        assert_eq!((ring.points[0].0, ring.points[159].0), (49_829_803, 4_262_490_280));
        for point in [3_930_598_503, 93_426_226, 1_456_291_591, 2_767_514_545] {
            assert!(ring.points.contains(&(point, 0)), "{point}");
        }
    }

    #[test]
    fn keys_lead_where_they_led() {
        let ring = Ring::new(NODES[..3].iter().copied());
        let known =
            [("/alma/armud", 0), ("/", 2), ("/index.html", 0), ("user-2", 1), ("192.168.1.1", 2), ("", 1)];
        for (key, place) in known {
            assert_eq!(ring.find(key.as_bytes()), Some(place), "{key}");
        }
        assert_eq!(Ring::default().find(b"x"), None);
    }

    #[test]
    fn a_new_endpoint_takes_its_share_and_nothing_else_moves() {
        let (before, after) = (Ring::new(NODES[..3].iter().copied()), Ring::new(NODES));
        let keys: Vec<String> = (0..200).map(|i| format!("k{i}")).collect();
        let moved: Vec<_> = keys
            .iter()
            .map(|key| (before.find(key.as_bytes()), after.find(key.as_bytes())))
            .filter(|(before, after)| before != after)
            .collect();
        assert_eq!(moved.len(), 50);
        assert!(moved.iter().all(|(_, after)| *after == Some(3)));
    }
}
