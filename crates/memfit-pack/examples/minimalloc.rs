//! x
#![allow(clippy::print_stdout, reason = "an example prints")]
use memfit_pack::{Effort, Item, pack};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let nodes: u64 = a[2].parse().unwrap();
    let goal: u64 = a[3].parse().unwrap();
    for c in a[1].chars() {
        let s = std::fs::read_to_string(format!("/work/shared/packing/minimalloc/{c}.1048576.csv")).unwrap();
        let items: Vec<Item> = s
            .lines()
            .skip(1)
            .map(|l| {
                let f: Vec<&str> = l.split(',').collect();
                Item::new(f[1].parse().unwrap(), f[2].parse().unwrap(), f[3].parse().unwrap())
            })
            .collect();
        let t = std::time::Instant::now();
        let p = pack(&items, Effort::nodes(nodes).until(goal));
        println!("{c} {} {} {:?}", p.height, p.bound, t.elapsed());
        memfit_pack::validate(&items, &p).unwrap();
    }
}
