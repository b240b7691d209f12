//! A model's configuration: any text becomes an answer or a table of layers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memfit::{Job, layer_table};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(config) = serde_json::from_slice(bytes) {
        let mut job = Job::for_config(config);
        job.train.batch = 3;
        let _ = layer_table(&job);
    }
});
