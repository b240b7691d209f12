//! Packs files of the minimalloc benchmarks and prints how high, beside the bound, and how long.
//!
//! ```text
//! cargo run --release -p memfit-pack --example minimalloc -- 10000000 1048576 FILE.csv ...
//! ```
//!
//! The first number is how many placements the search may try, the second a height that is good
//! enough (0: as low as possible).
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use memfit_pack::{Effort, csv, pack, validate};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [nodes, goal, files @ ..] = arguments.as_slice() else {
        return Err("usage: minimalloc NODES GOAL FILE...".into());
    };
    let effort = Effort::nodes(nodes.parse()?).until(goal.parse()?);
    println!("instance             items     height      bound  ratio  CPU s");
    let begin = cpu_seconds();
    for file in files {
        let table = csv::read(&fs::read_to_string(file)?)?;
        let before = cpu_seconds();
        let packing = pack(&table.items, effort);
        let seconds = cpu_seconds() - before;
        validate(&table.items, &packing)?;
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let (height, bound) = (packing.height, packing.bound);
        let ratio = height as f64 / bound.max(1) as f64;
        let items = table.items.len();
        println!("{name:20} {items:5} {height:10} {bound:10} {ratio:6.4} {seconds:6.2}");
    }
    println!("total {:61.2}", cpu_seconds() - begin);
    Ok(())
}

/// Seconds of processor time that all threads of this process have used, where Linux says so.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields after the name in brackets begin with the third; 14 and 15 are user and system.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}
