//! Builders of the most used layers, with Keras's names, arguments and defaults: one list, which a test compares with the table of
//! Keras's reader.

use super::builder_macro::{builders, default, example, kind, value};
use super::functional::{CallInputs, KerasTensor};
use super::layer::{ArgumentValue, Layer};

#[cfg(test)]
use super::builder_macro::Builder;

/// An activation by Keras's name; a text does as well, and a layer that is one.
///
/// ```
/// use memfit::prelude::*;
/// let by_name = Dense::new(8).activation(Gelu);
/// let by_text = Dense::new(8).activation("gelu");
/// let by_layer = Dense::new(8).activation(LeakyReLU::new().negative_slope(0.1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationName {
    /// `linear`: `x`.
    Linear,
    /// `relu`: `max(x, 0)`.
    Relu,
    /// `relu6`: `min(max(x, 0), 6)`.
    Relu6,
    /// `leaky_relu`: `max(x, 0.2 x)`.
    LeakyRelu,
    /// `elu`: `x` above 0, `exp(x) - 1` below.
    Elu,
    /// `selu`: a scaled ELU.
    Selu,
    /// `gelu`: `x · Φ(x)`.
    Gelu,
    /// `silu`: `x · sigmoid(x)`.
    Silu,
    /// `mish`: `x · tanh(softplus(x))`.
    Mish,
    /// `sigmoid`: `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `hard_sigmoid`: `relu6(x + 3) / 6`.
    HardSigmoid,
    /// `tanh`: the hyperbolic tangent.
    Tanh,
    /// `softplus`: `log(1 + exp(x))`.
    Softplus,
    /// `softmax`: `exp(x)` over its sum along the last axis.
    Softmax,
}

impl ActivationName {
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [ActivationName; 14] = [
        ActivationName::Linear,
        ActivationName::Relu,
        ActivationName::Relu6,
        ActivationName::LeakyRelu,
        ActivationName::Elu,
        ActivationName::Selu,
        ActivationName::Gelu,
        ActivationName::Silu,
        ActivationName::Mish,
        ActivationName::Sigmoid,
        ActivationName::HardSigmoid,
        ActivationName::Tanh,
        ActivationName::Softplus,
        ActivationName::Softmax,
    ];

    /// Keras's name of it.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// assert_eq!(HardSigmoid.name(), "hard_sigmoid");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            ActivationName::Linear => "linear",
            ActivationName::Relu => "relu",
            ActivationName::Relu6 => "relu6",
            ActivationName::LeakyRelu => "leaky_relu",
            ActivationName::Elu => "elu",
            ActivationName::Selu => "selu",
            ActivationName::Gelu => "gelu",
            ActivationName::Silu => "silu",
            ActivationName::Mish => "mish",
            ActivationName::Sigmoid => "sigmoid",
            ActivationName::HardSigmoid => "hard_sigmoid",
            ActivationName::Tanh => "tanh",
            ActivationName::Softplus => "softplus",
            ActivationName::Softmax => "softmax",
        }
    }
}

builders! {
    /// A fully connected layer: `activation(x · kernel + bias)`.
    Dense(units: size) as "Dense::new(10)" {
        activation: activation = "null",
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        bias_constraint: constraint = "null",
    }
    /// A convolution of images: height, width, channels.
    Conv2D(filters: size, kernel_size: pair) as "Conv2D::new(32, 3)" {
        strides: pair = "1",
        padding: padding = r#""valid""#,
        dilation_rate: pair = "1",
        groups: size = "1",
        activation: activation = "null",
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        bias_constraint: constraint = "null",
    }
    /// A convolution of sequences: steps, channels.
    Conv1D(filters: size, kernel_size: single) as "Conv1D::new(32, 3)" {
        strides: single = "1",
        padding: padding = r#""valid""#,
        dilation_rate: single = "1",
        groups: size = "1",
        activation: activation = "null",
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        bias_constraint: constraint = "null",
    }
    /// The transpose of a convolution of images.
    Conv2DTranspose(filters: size, kernel_size: pair) as "Conv2DTranspose::new(16, 3)" {
        strides: pair = "1",
        padding: padding = r#""valid""#,
        dilation_rate: pair = "1",
        activation: activation = "null",
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        bias_constraint: constraint = "null",
    }
    /// A convolution of each channel of images by itself.
    DepthwiseConv2D(kernel_size: pair) as "DepthwiseConv2D::new(3)" {
        strides: pair = "1",
        padding: padding = r#""valid""#,
        depth_multiplier: size = "1",
        dilation_rate: pair = "1",
        activation: activation = "null",
        use_bias: flag = "true",
        depthwise_initializer: initializer = r#""glorot_uniform""#,
        bias_initializer: initializer = r#""zeros""#,
        depthwise_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        depthwise_constraint: constraint = "null",
        bias_constraint: constraint = "null",
    }
    /// A depthwise convolution of images, and a pointwise one after it.
    SeparableConv2D(filters: size, kernel_size: pair) as "SeparableConv2D::new(32, 3)" {
        strides: pair = "1",
        padding: padding = r#""valid""#,
        dilation_rate: pair = "1",
        depth_multiplier: size = "1",
        activation: activation = "null",
        use_bias: flag = "true",
        depthwise_initializer: initializer = r#""glorot_uniform""#,
        pointwise_initializer: initializer = r#""glorot_uniform""#,
        bias_initializer: initializer = r#""zeros""#,
        depthwise_regularizer: regularizer = "null",
        pointwise_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        depthwise_constraint: constraint = "null",
        pointwise_constraint: constraint = "null",
        bias_constraint: constraint = "null",
    }
    /// The largest value of each window of images.
    MaxPooling2D(pool_size: pair) as "MaxPooling2D::new(2)" {
        strides: pair = "null",
        padding: padding = r#""valid""#,
    }
    /// The mean of each window of images.
    AveragePooling2D(pool_size: pair) as "AveragePooling2D::new(2)" {
        strides: pair = "null",
        padding: padding = r#""valid""#,
    }
    /// The largest value of each window of sequences.
    MaxPooling1D(pool_size: single) as "MaxPooling1D::new(2)" {
        strides: single = "null",
        padding: padding = r#""valid""#,
    }
    /// The mean of each window of sequences.
    AveragePooling1D(pool_size: single) as "AveragePooling1D::new(2)" {
        strides: single = "null",
        padding: padding = r#""valid""#,
    }
    /// The mean of each channel of images.
    GlobalAveragePooling2D() as "GlobalAveragePooling2D::new()" {
        keepdims: flag = "false",
    }
    /// The largest value of each channel of images.
    GlobalMaxPooling2D() as "GlobalMaxPooling2D::new()" {
        keepdims: flag = "false",
    }
    /// The mean of each channel of sequences.
    GlobalAveragePooling1D() as "GlobalAveragePooling1D::new()" {
        keepdims: flag = "false",
    }
    /// The largest value of each channel of sequences.
    GlobalMaxPooling1D() as "GlobalMaxPooling1D::new()" {
        keepdims: flag = "false",
    }
    /// All axes of a row as one.
    Flatten() as "Flatten::new()" {}
    /// The same elements under other dimensions; -1 stands for what is left.
    Reshape(target_shape: dims) as "Reshape::new([7, 7, -1])" {}
    /// Margins of zeros around images.
    ZeroPadding2D(padding: margins) as "ZeroPadding2D::new(1)" {}
    /// Images enlarged by whole factors.
    UpSampling2D(size: pair) as "UpSampling2D::new(2)" {
        interpolation: interpolation = r#""nearest""#,
    }
    /// Drops a share of the elements in training.
    Dropout(rate: number) as "Dropout::new(0.5)" {
        noise_shape: dims = "null",
        seed: seed = "null",
    }
    /// Normalises each channel over the batch.
    BatchNormalization() as "BatchNormalization::new()" {
        axis: axis = "-1",
        momentum: number = "0.99",
        epsilon: number = "1e-3",
        center: flag = "true",
        scale: flag = "true",
        beta_initializer: initializer = r#""zeros""#,
        gamma_initializer: initializer = r#""ones""#,
        moving_mean_initializer: initializer = r#""zeros""#,
        moving_variance_initializer: initializer = r#""ones""#,
        beta_regularizer: regularizer = "null",
        gamma_regularizer: regularizer = "null",
        beta_constraint: constraint = "null",
        gamma_constraint: constraint = "null",
    }
    /// Normalises each row over its last axes.
    LayerNormalization() as "LayerNormalization::new()" {
        axis: axes = "-1",
        epsilon: number = "1e-3",
        center: flag = "true",
        scale: flag = "true",
        beta_initializer: initializer = r#""zeros""#,
        gamma_initializer: initializer = r#""ones""#,
        beta_regularizer: regularizer = "null",
        gamma_regularizer: regularizer = "null",
        beta_constraint: constraint = "null",
        gamma_constraint: constraint = "null",
    }
    /// An activation as a layer of its own.
    Activation(activation: activation) as "Activation::new(Relu)" {}
    /// A ReLU with Keras's further arguments.
    ReLU() as "ReLU::new()" {
        max_value: number = "null",
        negative_slope: number = "0",
        threshold: number = "0",
    }
    /// A ReLU that lets a share of negative values through.
    LeakyReLU() as "LeakyReLU::new()" {
        negative_slope: number = "0.3",
    }
    /// `x · scale + offset`.
    Rescaling(scale: numbers) as "Rescaling::new(1.0 / 255.0)" {
        offset: numbers = "0",
    }
    /// A vector for each id.
    Embedding(input_dim: size, output_dim: size) as "Embedding::new(1000, 64)" {
        embeddings_initializer: initializer = r#""uniform""#,
        embeddings_regularizer: regularizer = "null",
        embeddings_constraint: constraint = "null",
        mask_zero: flag = "false",
    }
    /// A long short-term memory over a sequence.
    LSTM(units: size) as "LSTM::new(64)" {
        activation: gate = r#""tanh""#,
        recurrent_activation: gate = r#""sigmoid""#,
        unit_forget_bias: flag = "true",
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        recurrent_initializer: initializer = r#""orthogonal""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        recurrent_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        recurrent_constraint: constraint = "null",
        bias_constraint: constraint = "null",
        dropout: number = "0",
        recurrent_dropout: number = "0",
        seed: seed = "null",
        return_sequences: flag = "false",
        return_state: flag = "false",
        go_backwards: flag = "false",
        unroll: flag = "false",
        zero_output_for_mask: flag = "false",
    }
    /// A gated recurrent unit over a sequence.
    GRU(units: size) as "GRU::new(64)" {
        activation: gate = r#""tanh""#,
        recurrent_activation: gate = r#""sigmoid""#,
        reset_after: flag = "true",
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        recurrent_initializer: initializer = r#""orthogonal""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        recurrent_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        recurrent_constraint: constraint = "null",
        bias_constraint: constraint = "null",
        dropout: number = "0",
        recurrent_dropout: number = "0",
        seed: seed = "null",
        return_sequences: flag = "false",
        return_state: flag = "false",
        go_backwards: flag = "false",
        unroll: flag = "false",
        zero_output_for_mask: flag = "false",
    }
    /// A recurrent layer without gates.
    SimpleRNN(units: size) as "SimpleRNN::new(32)" {
        activation: gate = r#""tanh""#,
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        recurrent_initializer: initializer = r#""orthogonal""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        recurrent_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        recurrent_constraint: constraint = "null",
        bias_constraint: constraint = "null",
        dropout: number = "0",
        recurrent_dropout: number = "0",
        seed: seed = "null",
        return_sequences: flag = "false",
        return_state: flag = "false",
        go_backwards: flag = "false",
        unroll: flag = "false",
        zero_output_for_mask: flag = "false",
    }
    /// A recurrent layer over a sequence in both directions.
    Bidirectional(layer: layer) as "Bidirectional::new(LSTM::new(16))" {
        merge_mode: merge = r#""concat""#,
        backward_layer: layer = "null",
    }
    /// A layer on every step of a sequence.
    TimeDistributed(layer: layer) as "TimeDistributed::new(Dense::new(8))" {}
    /// Attention of several heads: called on query and value, or query, value and key.
    MultiHeadAttention(num_heads: size, key_dim: size) as "MultiHeadAttention::new(4, 16)" {
        value_dim: size = "null",
        output_shape: dims = "null",
        attention_axes: axes = "null",
        use_causal_mask: flag = "false",
        dropout: number = "0",
        use_bias: flag = "true",
        kernel_initializer: initializer = r#""glorot_uniform""#,
        bias_initializer: initializer = r#""zeros""#,
        kernel_regularizer: regularizer = "null",
        bias_regularizer: regularizer = "null",
        kernel_constraint: constraint = "null",
        bias_constraint: constraint = "null",
        seed: seed = "null",
    }
    /// The sum of tensors.
    Add() as "Add::new()" {}
    /// The difference of two tensors.
    Subtract() as "Subtract::new()" {}
    /// The product of tensors.
    Multiply() as "Multiply::new()" {}
    /// The mean of tensors.
    Average() as "Average::new()" {}
    /// The largest of tensors, element by element.
    Maximum() as "Maximum::new()" {}
    /// Tensors one after the other along an axis.
    Concatenate() as "Concatenate::new()" {
        axis: axis = "-1",
    }
}
