//! The benchmarks of the minimalloc paper: all eleven fit, and some are packed lower than known.

use std::fs;
use std::path::PathBuf;

use memfit_pack::{Effort, Packing, csv, pack, validate};

/// Packs a benchmark, if the files are here.
fn check(name: &str, effort: Effort) -> Option<Packing> {
    let folder = "../../../shared/packing/minimalloc";
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
    let Ok(text) = fs::read_to_string(&file) else {
        println!("skipped: {name} is not here");
        return None;
    };
    let table = csv::read(&text).expect("the benchmarks are well formed");
    let packing = pack(&table.items, effort);
    assert_eq!(validate(&table.items, &packing), Ok(()), "{name}");
    Some(packing)
}

#[test]
fn all_benchmarks_fit_in_their_capacity() {
    let capacity = 1_048_576;
    for letter in "ABCDEFGHIJK".chars() {
        let effort = Effort::nodes(2_000_000).until(capacity);
        if let Some(packing) = check(&format!("{letter}.1048576.csv"), effort) {
            assert!(packing.height <= capacity, "{letter} is {} high", packing.height);
        }
    }
    if let Some(packing) = check("input.12.csv", Effort::nodes(1_000)) {
        assert_eq!((packing.height, packing.bound), (12, 12));
    }
}

#[test]
fn some_benchmarks_are_packed_lower_than_was_known() {
    for (letter, height, nodes) in
        [('C', 1_039_360, 100_000), ('D', 1_031_168 - 1024, 400_000), ('J', 1_041_408 - 1024, 400_000)]
    {
        let effort = Effort::nodes(nodes).until(height);
        if let Some(packing) = check(&format!("{letter}.1048576.csv"), effort) {
            assert!(packing.height <= height, "{letter} is {} high", packing.height);
        }
    }
}
