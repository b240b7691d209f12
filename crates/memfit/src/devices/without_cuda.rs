//! No GPUs: this build leaves them out, and says so.

use serde_json::{Map, Value, json};

use crate::backends::WITHOUT_CUDA;

/// What there is of CUDA: nothing.
#[derive(Clone, Debug)]
pub struct Cuda;

impl Cuda {
    pub(super) fn find() -> Cuda {
        Cuda
    }

    pub(super) fn text(&self) -> String {
        format!("cuda     {WITHOUT_CUDA}\n")
    }

    pub(super) fn write_json(&self, devices: &mut Map<String, Value>) {
        devices.insert("cuda".to_owned(), Value::Null);
        devices.insert("gpus".to_owned(), json!([]));
        devices.insert("libraries".to_owned(), json!([]));
        devices.insert("failure".to_owned(), json!(WITHOUT_CUDA));
    }
}
