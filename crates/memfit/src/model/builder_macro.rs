//! What makes a layer's builder of a line of the list in `builders`: its type, its constructor, and a method for each argument.

/// The type in which an argument is given.
macro_rules! kind {
    (size) => { usize };
    (single) => { usize };
    (flag) => { bool };
    (number) => { f64 };
    (axis) => { i64 };
    (seed) => { u64 };
    (layer) => { impl Into<Layer> };
    ($other:ident) => { impl Into<ArgumentValue> };
}

/// An argument as the reader takes it.
macro_rules! value {
    (layer, $value:ident) => {
        ArgumentValue::from(Into::<Layer>::into($value))
    };
    ($kind:ident, $value:ident) => {
        $value
    };
}

/// A value that an example gives to an argument.
macro_rules! example {
    (size) => {
        "2"
    };
    (single) => {
        "2"
    };
    (pair) => {
        "2"
    };
    (flag) => {
        "true"
    };
    (number) => {
        "0.5"
    };
    (axis) => {
        "-1"
    };
    (axes) => {
        "[1, 2]"
    };
    (seed) => {
        "7"
    };
    (activation) => {
        "Relu"
    };
    (gate) => {
        "Tanh"
    };
    (initializer) => {
        "\"he_normal\""
    };
    (regularizer) => {
        "\"l2\""
    };
    (constraint) => {
        "\"non_neg\""
    };
    (padding) => {
        "\"same\""
    };
    (interpolation) => {
        "\"bilinear\""
    };
    (merge) => {
        "\"sum\""
    };
    (dims) => {
        "[1, 1, 8]"
    };
    (margins) => {
        "[[0, 1], [0, 1]]"
    };
    (numbers) => {
        "-1.0"
    };
    (layer) => {
        "LSTM::new(8)"
    };
}

/// The default of a layer that needs no arguments.
macro_rules! default {
    ($class:ident) => {
        impl Default for $class {
            fn default() -> $class {
                $class::new()
            }
        }
    };
    ($class:ident $($needed:ident)+) => {};
}

/// The builders of a list: class, positional arguments, an example, and the other arguments with Keras's defaults as JSON.
macro_rules! builders {
    ($(
        $(#[doc = $doc:literal])+
        $class:ident($($needed:ident: $needed_kind:ident),*) as $example:literal {
            $($option:ident: $kind:ident = $default:literal,)*
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// ```
            /// use memfit::prelude::*;
            #[doc = concat!("let layer = ", $example, ";")]
            /// ```
            #[derive(Clone, Debug)]
            pub struct $class(Layer);

            impl $class {
                #[doc = concat!("A `", stringify!($class), "` layer.")]
                ///
                /// ```
                /// use memfit::prelude::*;
                #[doc = concat!("let layer = ", $example, ";")]
                /// ```
                pub fn new($($needed: kind!($needed_kind)),*) -> $class {
                    let layer = Layer::new(stringify!($class));
                    $(let layer = layer.arg(stringify!($needed), value!($needed_kind, $needed));)*
                    $class(layer)
                }

                $(
                    #[doc = concat!("Keras's `", stringify!($option), "`: `", $default, "` where it is not given.")]
                    ///
                    /// ```
                    /// use memfit::prelude::*;
                    #[doc = concat!("let layer = ", $example, ".", stringify!($option), "(", example!($kind), ");")]
                    /// ```
                    pub fn $option(self, $option: kind!($kind)) -> $class {
                        $class(self.0.arg(stringify!($option), value!($kind, $option)))
                    }
                )*

                /// Any argument by Keras's name.
                ///
                /// ```
                /// use memfit::prelude::*;
                #[doc = concat!("let layer = ", $example, ".arg(\"trainable\", false);")]
                /// ```
                pub fn arg(self, name: &str, value: impl Into<ArgumentValue>) -> $class {
                    $class(self.0.arg(name, value))
                }

                /// Its name, in place of the one that Keras gives.
                ///
                /// ```
                /// use memfit::prelude::*;
                #[doc = concat!("let layer = ", $example, ".name(\"mine\");")]
                /// ```
                pub fn name(self, name: &str) -> $class {
                    $class(self.0.name(name))
                }

                /// Whether its weights learn: `true` where it is not given.
                ///
                /// ```
                /// use memfit::prelude::*;
                #[doc = concat!("let layer = ", $example, ".trainable(false);")]
                /// ```
                pub fn trainable(self, trainable: bool) -> $class {
                    $class(self.0.arg("trainable", trainable))
                }

                /// Its own dtype policy, in place of the model's.
                ///
                /// ```
                /// use memfit::prelude::*;
                #[doc = concat!("let layer = ", $example, ".dtype(\"float32\");")]
                /// ```
                pub fn dtype(self, policy: &str) -> $class {
                    $class(self.0.arg("dtype", policy))
                }

                /// What it gives for these tensors: one, or a list. Called several times, it has one set of weights.
                ///
                /// ```no_run
                /// use memfit::prelude::*;
                /// # let x = Input::shape([8, 8, 8]);
                #[doc = concat!("let y = ", $example, ".call(&x);")]
                /// ```
                pub fn call(&self, inputs: impl CallInputs) -> KerasTensor {
                    self.0.call(inputs)
                }
            }

            default!($class $($needed)*);

            impl From<$class> for Layer {
                fn from(layer: $class) -> Layer {
                    layer.0
                }
            }

            impl From<$class> for ArgumentValue {
                fn from(layer: $class) -> ArgumentValue {
                    layer.0.into()
                }
            }
        )+

        /// Every builder as its line says it, to be compared with the reader's table.
        #[cfg(test)]
        pub(super) const BUILDERS: &[Builder] = &[$(Builder {
            class: stringify!($class),
            needed: &[$((stringify!($needed), stringify!($needed_kind))),*],
            options: &[$((stringify!($option), stringify!($kind), $default)),*],
        }),+];
    };
}

/// A line of the list.
#[cfg(test)]
pub(super) struct Builder {
    pub(super) class: &'static str,
    /// Names and kinds.
    pub(super) needed: &'static [(&'static str, &'static str)],
    /// Names, kinds and defaults.
    pub(super) options: &'static [(&'static str, &'static str, &'static str)],
}

pub(super) use {builders, default, example, kind, value};
