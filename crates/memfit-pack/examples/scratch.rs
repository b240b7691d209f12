//! scratch
#![allow(clippy::print_stdout, reason = "an example prints")]
use memfit_pack::{Effort, Item, pack};
fn main() {
    for (count, longest, nodes) in [(5000, 400, 200_000), (20000, 400, 2_000_000), (100_000, 400, 3_000_000)]
    {
        let mut state = 88_172_645_463_325_252_u64;
        let mut below = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        let items: Vec<Item> = (0..count)
            .map(|_| {
                let l = below(count as u64) as usize;
                let d = 1 + below(longest) as usize;
                Item::new(l, l + d, 1 + below(1_000_000)).aligned(64)
            })
            .collect();
        for n in [0, nodes] {
            let t = std::time::Instant::now();
            let p = pack(&items, Effort::nodes(n));
            println!("{count} {longest} {n}: {:.5} {:?}", p.height as f64 / p.bound as f64, t.elapsed());
        }
    }
}
