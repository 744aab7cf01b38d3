//! A consistent hash ring with 160 points per member, chained through CRC-32 (as in ingress-nginx).
//!
//! A ring is built once and then updated: its points are in buckets by their first bits, and a change copies only the
//! buckets that it has points in. With 100,000 members, adding or removing one takes about a millisecond; rebuilding
//! the ring takes a second (`benches/balance.rs`).
//!
//! **Invariant:** the member for a key depends only on the set of members, not on the order of changes that led to it.

use std::sync::Arc;

use imbl::Vector;

/// Number of points per member.
const POINTS: usize = 160;

/// A member of a ring.
pub trait Member: Clone {
    /// The identity of a member within a ring, which also orders members with the same point.
    type Order: Ord;

    /// See [`Self::Order`].
    fn order(&self) -> Self::Order;

    /// The text that its points are derived from.
    fn name(&self) -> String;
}

/// Members on a circle of hashes. Immutable, and shares unchanged parts with the ring that it was derived from.
#[derive(Clone, Debug)]
pub struct Ring<T: Clone> {
    /// Their number is a power of two; in ascending order, as are the points in each.
    buckets: Box<[Arc<[Point]>]>,
    /// By the number that points refer to; `None` for a free number.
    members: Vector<Option<T>>,
    free: Vec<u32>,
    points: usize,
}

/// A hash, with the number of its member in the lower half: compared at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Point(u64);

impl Point {
    fn new(hash: u32, member: u32) -> Self {
        Self((u64::from(hash) << 32) | u64::from(member))
    }

    #[allow(clippy::cast_possible_truncation, reason = "these are the upper 32 bits")]
    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn member(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }
}

impl<T: Clone> Default for Ring<T> {
    fn default() -> Self {
        Self { buckets: [Arc::default()].into(), members: Vector::new(), free: Vec::new(), points: 0 }
    }
}

impl<T: Member> Ring<T> {
    /// A ring of members with different names, in any order.
    pub fn new(members: impl IntoIterator<Item = T>) -> Self {
        Self::default().changed([], members)
    }

    /// The same without the members `left`, and with the members `come`.
    pub fn changed(&self, left: impl IntoIterator<Item = T>, come: impl IntoIterator<Item = T>) -> Self {
        let mut members = self.members.clone();
        let mut free = self.free.clone();
        let (mut gone, mut fresh) = (Vec::new(), Vec::new());
        for member in left {
            let hashes = hashes(&member.name());
            let Some(number) = self.number(hashes[0], &member) else { continue };
            gone.extend(hashes.map(|hash| Point::new(hash, number)));
            members.set(number as usize, None);
            free.push(number);
        }
        for member in come {
            let hashes = hashes(&member.name());
            let number = free.pop().unwrap_or_else(|| {
                members.push_back(None);
                u32::try_from(members.len() - 1).unwrap_or(u32::MAX)
            });
            members.set(number as usize, Some(member));
            fresh.extend(hashes.map(|hash| Point::new(hash, number)));
        }
        gone.sort_unstable();
        fresh.sort_unstable();
        let points = self.points + fresh.len() - gone.len();
        let count = count_of_buckets(points);
        // A factor of a few does no harm, and so is seldom corrected.
        let fits = (self.buckets.len() / 4..=self.buckets.len() * 4).contains(&count);
        let mut buckets = if fits { self.buckets.clone() } else { self.spread(count) };
        change(&mut buckets, &gone, &fresh);
        Self { buckets, members, free, points }
    }

    /// The member for a key with this hash; `None` if the ring is empty.
    pub fn find(&self, hash: u32) -> Option<&T> {
        let (bucket, place) = self.place(hash)?;
        let bucket = &self.buckets[bucket][place..];
        let same = bucket.iter().take_while(|point| point.hash() == bucket[0].hash());
        same.filter_map(|point| self.member(*point)).min_by_key(|member| member.order())
    }

    /// From there on around the whole ring, point by point: a member with more points occurs more often.
    pub fn walk(&self, hash: u32) -> impl Iterator<Item = &T> {
        let start = self.place(hash);
        let from = start.into_iter().flat_map(move |(bucket, place)| {
            let after = self.buckets[bucket + 1..].iter().flat_map(|bucket| bucket.iter());
            let before = self.buckets[..bucket].iter().flat_map(|bucket| bucket.iter());
            let (head, tail) = self.buckets[bucket].split_at(place);
            tail.iter().chain(after).chain(before).chain(head)
        });
        from.filter_map(|point| self.member(*point))
    }

    /// The position of the first point at or after a hash.
    fn place(&self, hash: u32) -> Option<(usize, usize)> {
        let own = bucket_of(hash, self.buckets.len());
        let place = self.buckets[own].partition_point(|point| point.hash() < hash);
        if place < self.buckets[own].len() {
            return Some((own, place));
        }
        // If all its points are before the hash, it is reached again after going around.
        let around = (own + 1..self.buckets.len()).chain(0..=own);
        around.into_iter().find(|at| !self.buckets[*at].is_empty()).map(|at| (at, 0))
    }

    fn member(&self, point: Point) -> Option<&T> {
        self.members.get(point.member())?.as_ref()
    }

    /// The number of a member that has a point there.
    fn number(&self, hash: u32, member: &T) -> Option<u32> {
        let bucket = &self.buckets[bucket_of(hash, self.buckets.len())];
        let first = bucket.partition_point(|point| point.hash() < hash);
        let mut same = bucket[first..].iter().take_while(|point| point.hash() == hash);
        let is_its = |point: &&Point| self.member(**point).is_some_and(|it| it.order() == member.order());
        same.find(is_its).and_then(|point| u32::try_from(point.member()).ok())
    }

    /// The same points in this many buckets.
    fn spread(&self, count: usize) -> Box<[Arc<[Point]>]> {
        let points: Vec<Point> = self.buckets.iter().flat_map(|bucket| bucket.iter().copied()).collect();
        let mut rest = &points[..];
        let bucket = |number| {
            let (own, after) =
                rest.split_at(rest.partition_point(|it| bucket_of(it.hash(), count) <= number));
            rest = after;
            Arc::from(own)
        };
        (0..count).map(bucket).collect()
    }
}

/// The points of a name.
fn hashes(name: &str) -> [u32; POINTS] {
    let mut hash = 0u32;
    std::array::from_fn(|_| {
        let mut crc = crc32fast::Hasher::new();
        crc.update(name.as_bytes());
        crc.update(&hash.to_le_bytes());
        hash = crc.finalize();
        hash
    })
}

/// A change copies all bucket pointers and up to 160 buckets of points: this number minimises the cost.
fn count_of_buckets(points: usize) -> usize {
    (points.isqrt() * 4).next_power_of_two().clamp(1, 1 << 20)
}

/// `count` is a power of two.
fn bucket_of(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

/// Removes points from buckets and inserts others; both in ascending order.
fn change(buckets: &mut [Arc<[Point]>], mut gone: &[Point], mut fresh: &[Point]) {
    let count = buckets.len();
    let first = |points: &[Point]| points.first().map(|point| bucket_of(point.hash(), count));
    while let Some(at) = first(gone).into_iter().chain(first(fresh)).min() {
        let until = |points: &[Point]| points.partition_point(|point| bucket_of(point.hash(), count) <= at);
        let (out, rest) = gone.split_at(until(gone));
        gone = rest;
        let (new, rest) = fresh.split_at(until(fresh));
        fresh = rest;
        buckets[at] = merge(&buckets[at], out, new).into();
    }
}

/// One bucket without some of its points and with others; all in ascending order. Unchanged ranges are copied as a
/// whole.
fn merge(old: &[Point], mut gone: &[Point], mut fresh: &[Point]) -> Vec<Point> {
    let mut points = Vec::with_capacity(old.len() + fresh.len() - gone.len());
    let mut rest = old;
    let mut copy_until = |point: Point, points: &mut Vec<Point>, skips: usize| {
        let (before, after) = rest.split_at(rest.partition_point(|it| *it < point));
        points.extend_from_slice(before);
        rest = after.get(skips..).unwrap_or_default();
    };
    loop {
        match (gone.split_first(), fresh.split_first()) {
            // Removals first: a new member may reuse the number of its predecessor.
            (Some((out, others)), new) if new.is_none_or(|(new, _)| out <= new) => {
                copy_until(*out, &mut points, 1);
                gone = others;
            }
            (_, Some((new, others))) => {
                copy_until(*new, &mut points, 0);
                points.push(*new);
                fresh = others;
            }
            (_, None) => break,
        }
    }
    points.extend_from_slice(rest);
    points
}

#[cfg(test)]
mod tests;
