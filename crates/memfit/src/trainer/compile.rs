//! Losses, optimizers and metrics as a program writes them: Keras's names, arguments and defaults, read by the same code as those of a
//! job file.

use serde_json::{Map, Value};

use crate::prelude::ArgumentValue;

/// What the three have in common: a class and its arguments.
macro_rules! named {
    ($(#[doc = $doc:literal])+ $name:ident, $class:literal, $argument:literal) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug)]
        pub struct $name(Map<String, Value>);

        impl $name {
            /// By the name of its class in Keras.
            ///
            /// ```
            /// use memfit::prelude::*;
            #[doc = concat!("let one = ", stringify!($name), "::new(\"", $class, "\");")]
            /// ```
            pub fn new(class: &str) -> $name {
                $name(Map::from_iter([("class".to_owned(), Value::from(class))]))
            }

            /// With an argument by Keras's name.
            ///
            /// ```
            /// use memfit::prelude::*;
            #[doc = concat!("let one = ", stringify!($name), "::new(\"", $class, "\").arg(", $argument, ");")]
            /// ```
            pub fn arg(mut self, name: &str, value: impl Into<ArgumentValue>) -> $name {
                let value = value.into().into_json();
                if value.is_null() {
                    self.0.remove(name);
                } else {
                    self.0.insert(name.to_owned(), value);
                }
                self
            }

            /// As a job has it: a name where there are no arguments.
            pub(super) fn into_json(self) -> Value {
                match self.0.get("class") {
                    Some(class) if self.0.len() == 1 => class.clone(),
                    Some(_) | None => Value::Object(self.0),
                }
            }
        }

        impl From<&str> for $name {
            fn from(class: &str) -> $name {
                $name::new(class)
            }
        }
    };
}

named! {
    /// A loss by Keras's name; the usual ones have types of their own. A text does as well.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let by_name = Trainer::new(&model).loss("log_cosh");
    /// let with_arguments = Trainer::new(&model).loss(Loss::new("Tversky").arg("alpha", 0.3));
    /// ```
    Loss, "LogCosh", "\"reduction\", \"sum\""
}

named! {
    /// An optimizer by Keras's name; the usual ones have types of their own. A text does as well.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).optimizer(Optimizer::new("Lion").arg("beta_1", 0.95));
    /// ```
    Optimizer, "Nadam", "\"learning_rate\", 1e-3"
}

named! {
    /// A metric by Keras's name. A text does as well.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(9).activation(Softmax));
    /// let trainer = Trainer::new(&model)
    ///     .metrics([Metric::from("accuracy"), Metric::new("SparseTopKCategoricalAccuracy").arg("k", 3)]);
    /// ```
    Metric, "TopKCategoricalAccuracy", "\"k\", 3"
}

named! {
    /// How a learning rate changes, by Keras's name.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let rate = Schedule::new("CosineDecay").arg("initial_learning_rate", 0.1).arg("decay_steps", 1000);
    /// let optimizer = SGD::default().learning_rate(rate);
    /// ```
    Schedule, "CosineDecay", "\"decay_steps\", 100"
}

impl From<Schedule> for ArgumentValue {
    fn from(schedule: Schedule) -> ArgumentValue {
        schedule.into_json().into()
    }
}

/// The type in which an argument is given.
macro_rules! kind {
    (flag) => { bool };
    (number) => { f64 };
    (whole) => { u64 };
    (integer) => { i64 };
    ($other:ident) => { impl Into<ArgumentValue> };
}

/// A value that an example gives to an argument.
macro_rules! example {
    (flag) => {
        "true"
    };
    (number) => {
        "0.5"
    };
    (whole) => {
        "2"
    };
    (integer) => {
        "-1"
    };
    (rate) => {
        "1e-2"
    };
    (text) => {
        "\"sum\""
    };
    (names) => {
        "[\"bias\"]"
    };
}

/// Losses or optimizers with Keras's arguments; a default is what the reader takes where an argument is not given.
macro_rules! configured {
    ($into:ident, $($(#[doc = $doc:literal])+ $class:ident { $($option:ident: $kind:ident = $default:literal,)* })+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// ```
            /// use memfit::prelude::*;
            #[doc = concat!("let one = ", stringify!($class), "::default();")]
            /// ```
            #[derive(Clone, Debug)]
            pub struct $class($into);

            impl Default for $class {
                fn default() -> $class {
                    $class($into::new(stringify!($class)))
                }
            }

            impl $class {
                $(
                    #[doc = concat!("Keras's `", stringify!($option), "`: `", $default, "` where it is not given.")]
                    ///
                    /// ```
                    /// use memfit::prelude::*;
                    #[doc = concat!("let one = ", stringify!($class), "::default().", stringify!($option), "(", example!($kind), ");")]
                    /// ```
                    pub fn $option(self, $option: kind!($kind)) -> $class {
                        $class(self.0.arg(stringify!($option), $option))
                    }
                )*
            }

            impl From<$class> for $into {
                fn from(one: $class) -> $into {
                    one.0
                }
            }
        )+
    };
}

/// Every class of a list, its arguments and their defaults as JSON, to be compared with what the reader takes.
#[cfg(test)]
type Row = (&'static str, &'static [(&'static str, &'static str)]);

macro_rules! lists {
    ($(#[doc = $doc:literal])+ $list:ident of $into:ident { $($(#[doc = $line:literal])+ $class:ident { $($option:ident: $kind:ident = $default:literal,)* })+ }) => {
        configured! { $into, $($(#[doc = $line])+ $class { $($option: $kind = $default,)* })+ }

        $(#[doc = $doc])+
        #[cfg(test)]
        const $list: &[Row] = &[$((stringify!($class), &[$((stringify!($option), $default)),*])),+];
    };
}

lists! {
    /// The losses that have types.
    LOSSES of Loss {
        /// Crossentropy of class numbers: targets are whole numbers from 0.
        SparseCategoricalCrossentropy {
            from_logits: flag = "false",
            ignore_class: integer = "null",
            reduction: text = r#""sum_over_batch_size""#,
        }
        /// Crossentropy of classes: targets are one number for every class.
        CategoricalCrossentropy {
            from_logits: flag = "false",
            label_smoothing: number = "0.0",
            reduction: text = r#""sum_over_batch_size""#,
        }
        /// Crossentropy of yes and no.
        BinaryCrossentropy {
            from_logits: flag = "false",
            label_smoothing: number = "0.0",
            reduction: text = r#""sum_over_batch_size""#,
        }
        /// The mean of squared differences.
        MeanSquaredError {
            reduction: text = r#""sum_over_batch_size""#,
        }
        /// The mean of absolute differences.
        MeanAbsoluteError {
            reduction: text = r#""sum_over_batch_size""#,
        }
        /// Squared differences near 0, absolute ones beyond `delta`.
        Huber {
            delta: number = "1.0",
            reduction: text = r#""sum_over_batch_size""#,
        }
    }
}

lists! {
    /// The optimizers that have types.
    OPTIMIZERS of Optimizer {
        /// Stochastic gradient descent, where wanted with momentum.
        SGD {
            learning_rate: rate = "0.01",
            momentum: number = "0.0",
            nesterov: flag = "false",
            weight_decay: number = "null",
            clipnorm: number = "null",
            clipvalue: number = "null",
            global_clipnorm: number = "null",
            use_ema: flag = "false",
            ema_momentum: number = "0.99",
            ema_overwrite_frequency: whole = "null",
            loss_scale_factor: number = "null",
            gradient_accumulation_steps: whole = "null",
            exclude_from_weight_decay: names = "null",
        }
        /// Adam.
        Adam {
            learning_rate: rate = "0.001",
            beta_1: number = "0.9",
            beta_2: number = "0.999",
            epsilon: number = "1e-7",
            amsgrad: flag = "false",
            weight_decay: number = "null",
            clipnorm: number = "null",
            clipvalue: number = "null",
            global_clipnorm: number = "null",
            use_ema: flag = "false",
            ema_momentum: number = "0.99",
            ema_overwrite_frequency: whole = "null",
            loss_scale_factor: number = "null",
            gradient_accumulation_steps: whole = "null",
            exclude_from_weight_decay: names = "null",
        }
        /// Adam with weight decay beside the gradient.
        AdamW {
            learning_rate: rate = "0.001",
            beta_1: number = "0.9",
            beta_2: number = "0.999",
            epsilon: number = "1e-7",
            amsgrad: flag = "false",
            weight_decay: number = "0.004",
            clipnorm: number = "null",
            clipvalue: number = "null",
            global_clipnorm: number = "null",
            use_ema: flag = "false",
            ema_momentum: number = "0.99",
            ema_overwrite_frequency: whole = "null",
            loss_scale_factor: number = "null",
            gradient_accumulation_steps: whole = "null",
            exclude_from_weight_decay: names = "null",
        }
        /// RMSprop.
        RMSprop {
            learning_rate: rate = "0.001",
            rho: number = "0.9",
            momentum: number = "0.0",
            epsilon: number = "1e-7",
            centered: flag = "false",
            weight_decay: number = "null",
            clipnorm: number = "null",
            clipvalue: number = "null",
            global_clipnorm: number = "null",
            use_ema: flag = "false",
            ema_momentum: number = "0.99",
            ema_overwrite_frequency: whole = "null",
            loss_scale_factor: number = "null",
            gradient_accumulation_steps: whole = "null",
            exclude_from_weight_decay: names = "null",
        }
        /// Adagrad.
        Adagrad {
            learning_rate: rate = "0.001",
            initial_accumulator_value: number = "0.1",
            epsilon: number = "1e-7",
            weight_decay: number = "null",
            clipnorm: number = "null",
            clipvalue: number = "null",
            global_clipnorm: number = "null",
            use_ema: flag = "false",
            ema_momentum: number = "0.99",
            ema_overwrite_frequency: whole = "null",
            loss_scale_factor: number = "null",
            gradient_accumulation_steps: whole = "null",
            exclude_from_weight_decay: names = "null",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_loss, parse_optimizer};

    /// Each class read with nothing given, and with every default given.
    #[track_caller]
    fn check(rows: &[Row], read: impl Fn(&Value) -> String) {
        for (class, options) in rows {
            let mut given = Loss::new(class);
            for (name, default) in *options {
                let value: Value = serde_json::from_str(default).unwrap();
                given.0.insert((*name).to_owned(), value);
            }
            assert_eq!(read(&Value::from(*class)), read(&given.into_json()), "{class}");
        }
    }

    #[test]
    fn defaults_are_those_that_the_reader_takes() {
        check(LOSSES, |value| format!("{:?}", parse_loss(value, "loss").unwrap()));
        check(OPTIMIZERS, |value| format!("{:?}", parse_optimizer(value).unwrap()));
    }

    #[test]
    fn arguments_come_to_the_reader() {
        let read = |loss: Loss| format!("{:?}", parse_loss(&loss.into_json(), "loss").unwrap());
        assert!(read(Huber::default().delta(0.25).into()).contains("0.25"));
        assert!(read("mse".into()).contains("MeanSquaredError"));
        let adam: Optimizer = Adam::default().beta_1(0.5).learning_rate(0.125).clipnorm(1.0).into();
        let read = parse_optimizer(&adam.into_json()).unwrap();
        assert!(format!("{read:?}").contains("0.5") && read.schedule.at(0) == 0.125);
        let rate = Schedule::new("ExponentialDecay")
            .arg("initial_learning_rate", 0.5)
            .arg("decay_steps", 10)
            .arg("decay_rate", 0.5);
        let sgd: Optimizer = SGD::default().learning_rate(rate).into();
        assert_eq!(parse_optimizer(&sgd.into_json()).unwrap().schedule.at(10), 0.25);
    }
}
