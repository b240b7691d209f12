//! Packing a file of buffers: lifetimes in, offsets out.

use std::fs;
use std::path::Path;
use std::time::Instant;

use memfit_pack::csv::{self, Table};
use memfit_pack::{Effort, Irreducible, Packing, irreducible, pack_while};
use serde_json::{Value, json};

use crate::Error;

/// Placements tried for each set of buffers while looking for one that cannot fit.
const NODES_FOR_REASON: u64 = 20_000;

/// What is asked of a packing.
#[derive(Clone, Copy, Debug)]
pub struct PackRequest {
    /// Any height up to this will do, unless it shall be as low as can be found.
    pub capacity: Option<u64>,
    /// As low as can be found, even where the capacity is met.
    pub minimize: bool,
    /// How long to look.
    pub seconds: f64,
}

/// A packing of a file.
#[derive(Clone, Debug)]
pub struct PackAnswer {
    /// The offsets.
    pub packing: Packing,
    /// Why the capacity is not met: buffers that cannot be packed into it.
    pub reason: Option<Vec<String>>,
    /// Whether the reason is proven, and not only what a search of limited length found.
    pub proven: bool,
    /// Whether the capacity is met.
    pub fits: bool,
    /// How long it took.
    pub seconds: f64,
    table: Table,
}

impl PackAnswer {
    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        let optimal = self.packing.height == self.packing.bound;
        json!({
            "height": self.packing.height,
            "bound": self.packing.bound,
            "optimal": optimal,
            "seconds": self.seconds,
        })
    }

    /// The file with a column of offsets.
    pub fn to_csv(&self) -> String {
        csv::write(&self.table, Some(&self.packing))
    }
}

/// Packs a file in minimalloc's form.
pub fn pack_file(path: &Path, request: PackRequest) -> Result<PackAnswer, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    let table =
        csv::read(&text).map_err(|error| Error::job(path.display().to_string(), error.to_string()))?;
    let start = Instant::now();
    let goal = if request.minimize { 0 } else { request.capacity.unwrap_or(0) };
    let effort = Effort::nodes(u64::MAX).until(goal);
    let packing = pack_while(&table.items, effort, &|| start.elapsed().as_secs_f64() < request.seconds);
    let seconds = start.elapsed().as_secs_f64();
    let fits = request.capacity.is_none_or(|capacity| packing.height <= capacity);
    let culprits = request
        .capacity
        .filter(|_| !fits)
        .and_then(|capacity| irreducible(&table.items, capacity, Effort::nodes(NODES_FOR_REASON)));
    let names = |found: &Irreducible| found.items.iter().map(|item| table.ids[*item].clone()).collect();
    let (reason, proven) = (culprits.as_ref().map(names), culprits.is_some_and(|found| found.proven));
    Ok(PackAnswer { packing, reason, proven, fits, seconds, table })
}
