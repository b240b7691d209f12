//! Training from a Rust program: a model, what it is trained for, arrays, and a budget become a job like any other.

mod compile;
mod data;
mod inference;
mod plan;
mod settings;
mod trained;
mod values;

pub use compile::{
    Adagrad, Adam, AdamW, BinaryCrossentropy, CategoricalCrossentropy, Huber, Loss, MeanAbsoluteError,
    MeanSquaredError, Metric, Optimizer, RMSprop, SGD, Schedule, SparseCategoricalCrossentropy,
};
pub use data::{Array, Data, Dataset};
pub use inference::{Evaluated, Prediction};
pub use plan::{Epochs, TrainingPlan};
pub use settings::Trainer;
pub use trained::{History, Trained};
pub(crate) use values::Values;
