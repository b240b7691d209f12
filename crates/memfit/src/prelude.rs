//! What a program needs to write a model down and train it: `use memfit::prelude::*`.
//!
//! ```no_run
//! use memfit::prelude::*;
//!
//! let model = Sequential::new(Input::shape([28, 28, 1]))
//!     .add(Conv2D::new(32, 3).activation(Relu))
//!     .add(MaxPooling2D::new(2))
//!     .add(Flatten::new())
//!     .add(Dense::new(10).activation(Softmax));
//! # let (x, y) = (vec![0u8; 60_000 * 784], vec![0u8; 60_000]);
//! let data = Dataset::new(Array::new(&x, [60_000, 28, 28, 1])?, Array::new(&y, [60_000])?);
//! let plan = Trainer::new(&model)
//!     .loss(SparseCategoricalCrossentropy::default())
//!     .optimizer(Adam::default())
//!     .metrics(["accuracy"])
//!     .batch(256)
//!     .budget("512 MiB")
//!     .plan()?;
//! println!("{plan}");
//! plan.fit(&data, Epochs(3))?.save("mnist.keras")?;
//! # Ok::<(), Error>(())
//! ```

pub use crate::model::builders::ActivationName::{
    self, Elu, Gelu, HardSigmoid, LeakyRelu, Linear, Mish, Relu, Relu6, Selu, Sigmoid, Silu, Softmax,
    Softplus, Tanh,
};
pub use crate::model::builders::{
    Activation, Add, Average, AveragePooling1D, AveragePooling2D, BatchNormalization, Bidirectional,
    Concatenate, Conv1D, Conv2D, Conv2DTranspose, Dense, DepthwiseConv2D, Dropout, Embedding, Flatten, GRU,
    GlobalAveragePooling1D, GlobalAveragePooling2D, GlobalMaxPooling1D, GlobalMaxPooling2D, LSTM,
    LayerNormalization, LeakyReLU, MaxPooling1D, MaxPooling2D, Maximum, MultiHeadAttention, Multiply, ReLU,
    Rescaling, Reshape, SeparableConv2D, SimpleRNN, Subtract, TimeDistributed, UpSampling2D, ZeroPadding2D,
};
pub use crate::model::{ArgumentValue, CallInputs, Input, KerasTensor, Layer, Model, Sequential};
pub use crate::trainer::{
    Adagrad, Adam, AdamW, Array, BinaryCrossentropy, CategoricalCrossentropy, Data, Dataset, Epochs,
    Evaluated, History, Huber, Loss, MeanAbsoluteError, MeanSquaredError, Metric, Optimizer, Prediction,
    RMSprop, SGD, Schedule, SparseCategoricalCrossentropy, Trained, Trainer, TrainingPlan,
};
pub use crate::{Bytes, DoesNotFit, Error};
