//! Packs what a deep network's training keeps, and many random items, and prints how long it took.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::time::Instant;

use memfit_pack::{Effort, Item, pack};

fn main() {
    for layers in [600, 5_000] {
        show(&format!("training, {layers} layers"), &training(layers));
    }
    for (count, longest) in [(5_000, 400), (100_000, 400), (100_000, 100_000)] {
        show(&format!("random, lives up to {longest}"), &random(count, longest));
    }
}

fn show(name: &str, items: &[Item]) {
    let begin = Instant::now();
    let packing = pack(items, Effort::GREEDY);
    let seconds = begin.elapsed().as_secs_f64();
    let ratio = packing.height as f64 / packing.bound as f64;
    println!("{name:28} {:7} items  {ratio:.4} x bound  {:.1} ms", items.len(), 1e3 * seconds);
}

/// Activations nested like a stack, gradients that live for two steps, a workspace for each step.
fn training(layers: usize) -> Vec<Item> {
    let end = 2 * layers;
    let mut items = Vec::new();
    for layer in 0..layers {
        let size = if layer % 50 == 0 { 98_304 } else { 65_536 };
        let back = end - layer;
        for size in [size, size, size / 64 + 4, 1_000] {
            items.push(Item::new(layer, back, size).aligned(64));
        }
        items.push(Item::new(layer, layer + 1, 30_000 + (layer as u64 % 7) * 1_000).aligned(64));
        items.push(Item::new(back - 1, back, 50_000 + (layer as u64 % 5) * 100).aligned(64));
        items.push(Item::new(back - 1, back + 1, size).aligned(64));
        items.push(Item::new(back - 1, back, 4_096).aligned(64));
    }
    items
}

/// Items of all sizes, born at any time.
fn random(count: usize, longest: u64) -> Vec<Item> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let item = |_| {
        let lower = below(count as u64) as usize;
        let length = 1 + below(longest) as usize;
        Item::new(lower, lower + length, 1 + below(1_000_000)).aligned(64)
    };
    (0..count).map(item).collect()
}
