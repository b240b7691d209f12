//! A chain of segments: what each gives up, so that a limit is held in the least time, by dynamic programming.
//!
//! Segments are run through one after the other in forward and in the other direction in backward. So when a segment is at work, all
//! before it wait, and what they gave up is room:
//!
//! ```text
//! highest of a segment's own  -  what was given up before it  <=  limit
//! ```
//!
//! A segment that gives up its output leaves the next one without an input, which is then brought back from a farther one; from
//! then on it stands there until its own segment has been at work. Outputs in a row that are given up are a *run*.

/// What one segment may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ways {
    /// Bytes that do not wait.
    pub gain: u64,
    /// The part of them that comes back with the output, for the next segment; 0 where the output waits.
    pub output: u64,
    /// Time that bringing everything back takes.
    pub nanos: f64,
    /// Most bytes while it is at work in backward, if none before it gives anything up.
    pub high: u64,
}

/// One segment: most bytes while it is at work in forward, and what it may do.
#[derive(Clone, Debug)]
pub struct Link {
    /// Most bytes in forward.
    pub high: u64,
    /// What it may do.
    pub ways: Vec<Ways>,
}

/// One path through the first segments.
#[derive(Clone, Copy)]
struct Place {
    nanos: f64,
    gain: u64,
    run: u64,
    /// The place before, and what the last segment did.
    before: u32,
    way: u16,
}

/// The option of each segment in the fastest path below a limit; none where there is none.
///
/// Bytes are counted in `parts` parts of those that have to be given up: of paths that gave up about as much,
/// the fastest stays.
pub fn fastest(links: &[Link], limit: u64, parts: usize) -> Option<Vec<usize>> {
    let high = |link: &Link| {
        let backward = link.ways.iter().map(|way| way.high).max();
        link.high.max(backward.unwrap_or(0))
    };
    // There is no use in giving up more than this.
    let most = links.iter().map(high).max()?.saturating_sub(limit).max(1);
    let scale = parts as f64 / most as f64;
    let part = |bytes: u64| ((bytes.min(most) as f64 * scale) as usize).min(parts);
    // The places after each segment, in the order of the segments.
    let mut places = vec![Place { nanos: 0.0, gain: 0, run: 0, before: 0, way: 0 }];
    let mut first = 0;
    let mut board = Board::new(parts);
    for link in links {
        for (index, from) in places.iter().enumerate().skip(first) {
            let room = limit + (from.gain - from.run);
            if room < link.high {
                continue;
            }
            for (way, does) in link.ways.iter().enumerate().filter(|(_, does)| does.high <= room) {
                let to = Place {
                    nanos: from.nanos + does.nanos,
                    gain: from.gain + does.gain,
                    run: if does.output == 0 { 0 } else { from.run + does.output },
                    before: index as u32,
                    way: way as u16,
                };
                board.put(part(to.gain - to.run), part(to.gain), to);
            }
        }
        first = places.len();
        board.take_undominated(&mut places);
    }
    let last = places.iter().enumerate().skip(first).min_by(|a, b| a.1.nanos.total_cmp(&b.1.nanos))?;
    let mut ways = Vec::with_capacity(links.len());
    let mut at = last.0;
    while ways.len() < links.len() {
        ways.push(usize::from(places[at].way));
        at = places[at].before as usize;
    }
    ways.reverse();
    Some(ways)
}

/// The fastest places after one segment, by the room that there is now, and the room when the run is over.
struct Board {
    parts: usize,
    /// The time of the fastest at each square, row by row.
    nanos: Vec<f64>,
    /// Where it stands among all that were put.
    index: Vec<u32>,
    put: Vec<Place>,
}

impl Board {
    fn new(parts: usize) -> Board {
        let squares = (parts + 1) * (parts + 1);
        Board { parts, nanos: vec![f64::INFINITY; squares], index: vec![0; squares], put: Vec::new() }
    }

    fn put(&mut self, now: usize, later: usize, place: Place) {
        let square = now * (self.parts + 1) + later;
        let held = self.nanos[square];
        if held == f64::INFINITY {
            self.index[square] = self.put.len() as u32;
            self.put.push(place);
            self.nanos[square] = place.nanos;
        } else {
            let other = &mut self.put[self.index[square] as usize];
            if place.nanos < held || (place.nanos == held && other.gain < place.gain) {
                *other = place;
                self.nanos[square] = place.nanos;
            }
        }
    }

    /// Takes everything off, and keeps the places that no other is faster than with as much room, now and later.
    fn take_undominated(&mut self, kept: &mut Vec<Place>) {
        // The fastest with at least this much room later, and now no less room than at the sweep's position.
        let mut least = vec![f64::INFINITY; self.parts + 1];
        for now in (0..=self.parts).rev() {
            let row = now * (self.parts + 1);
            let mut fastest = f64::INFINITY;
            for later in (now..=self.parts).rev() {
                fastest = fastest.min(least[later]);
                let nanos = std::mem::replace(&mut self.nanos[row + later], f64::INFINITY);
                if nanos < fastest {
                    kept.push(self.put[self.index[row + later] as usize]);
                    fastest = nanos;
                }
                least[later] = fastest;
            }
        }
        self.put.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number below a limit from a seed and a place.
    fn drawn(seed: u64, place: u64, limit: u64) -> u64 {
        let mut x =
            (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (place + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
        x ^= x >> 31;
        x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 29)) % limit
    }

    /// A chain whose waiting bytes grow from segment to segment, as those of a network do.
    fn chain(seed: u64) -> Vec<Link> {
        let mut waiting = 0;
        let links = 2 + drawn(seed, 0, 5);
        let link = |index: u64| {
            let draw = |place: u64, limit: u64| drawn(seed, 1 + index * 64 + place, limit);
            let (output, inner) = (1 + draw(0, 8), draw(1, 20));
            let ways = (0..1 + draw(2, 4)).map(|way| {
                let given = if way == 0 { 0 } else { draw(4 + 4 * way, inner + 1) };
                let output = if 0 < way && draw(5 + 4 * way, 2) == 0 { output } else { 0 };
                let nanos = if way == 0 { 0 } else { 1 + draw(6 + 4 * way, 50) };
                let high = waiting + output + inner + draw(7 + 4 * way, 8);
                Ways { gain: given + output, output, nanos: nanos as f64, high }
            });
            let link = Link { high: waiting + inner, ways: ways.collect() };
            waiting += output + inner;
            link
        };
        (0..links).map(link).collect()
    }

    /// Whether what each segment does holds the limit, and the time of it: said once more, as the page above says it.
    fn time_below(links: &[Link], ways: &[usize], limit: u64) -> Option<f64> {
        let (mut given, mut back, mut nanos) = (0, 0, 0.0);
        for (link, way) in links.iter().zip(ways) {
            let does = link.ways[*way];
            if limit + given < link.high + back || limit + given < does.high + back {
                return None;
            }
            given += does.gain;
            back = if 0 < does.output { back + does.output } else { 0 };
            nanos += does.nanos;
        }
        Some(nanos)
    }

    fn every(links: &[Link]) -> Vec<Vec<usize>> {
        links.iter().fold(vec![Vec::new()], |all, link| {
            let grown = |ways: &Vec<usize>| {
                let ways = ways.clone();
                (0..link.ways.len()).map(move |way| [ways.clone(), vec![way]].concat())
            };
            all.iter().flat_map(grown).collect()
        })
    }

    #[test]
    fn on_random_chains_it_is_as_fast_as_trying_everything() {
        let (mut below, mut impossible) = (0, 0);
        for seed in 0..100 {
            let links = chain(seed);
            let all = every(&links);
            for limit in (0..120).step_by(4) {
                let least =
                    all.iter().filter_map(|ways| time_below(&links, ways, limit)).min_by(f64::total_cmp);
                let found = fastest(&links, limit, 400);
                let time =
                    found.as_ref().map(|ways| time_below(&links, ways, limit).expect("it holds the limit"));
                assert_eq!(time, least, "seed {seed} below {limit}");
                below += usize::from(least.is_some_and(|time| 0.0 < time));
                impossible += usize::from(least.is_none());
                let coarse = fastest(&links, limit, 8);
                let time =
                    coarse.map(|ways| time_below(&links, &ways, limit).expect("a coarse one holds it too"));
                assert!(time.is_none_or(|time| least.is_some_and(|least| least <= time)), "seed {seed}");
            }
        }
        assert!(200 < below && 200 < impossible, "{below} chains give something up, {impossible} cannot");
    }
}
