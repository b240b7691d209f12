//! Numbers with a derivative: what is computed from them has its derivative too.

use std::ops::{Add, Mul, Neg, Sub};

use super::super::elementwise::{sigmoid, sign, softplus};

/// A value, and its derivative by the one number that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dual {
    pub(super) value: f64,
    pub(super) derivative: f64,
}

impl Dual {
    /// The number itself.
    pub(super) fn variable(value: f64) -> Dual {
        Dual { value, derivative: 1.0 }
    }

    pub(super) fn constant(value: f64) -> Dual {
        Dual { value, derivative: 0.0 }
    }

    /// A function of this, by its value and its derivative here.
    fn chain(self, value: f64, derivative: f64) -> Dual {
        // Where this is constant, so is the function, even where its derivative is infinite.
        let inner = if self.derivative == 0.0 { 0.0 } else { self.derivative * derivative };
        Dual { value, derivative: inner }
    }

    pub(super) fn ln(self) -> Dual {
        self.chain(self.value.ln(), 1.0 / self.value)
    }

    pub(super) fn abs(self) -> Dual {
        self.chain(self.value.abs(), sign(self.value))
    }

    pub(super) fn powf(self, power: f64) -> Dual {
        self.chain(self.value.powf(power), power * self.value.powf(power - 1.0))
    }

    pub(super) fn sigmoid(self) -> Dual {
        let y = sigmoid(self.value);
        self.chain(y, y * (1.0 - y))
    }

    pub(super) fn softplus(self) -> Dual {
        self.chain(softplus(self.value), sigmoid(self.value))
    }

    /// Constant outside of a range.
    pub(super) fn clip(self, low: f64, high: f64) -> Dual {
        if self.value < low {
            Dual::constant(low)
        } else if self.value > high {
            Dual::constant(high)
        } else {
            self
        }
    }
}

impl From<f64> for Dual {
    fn from(value: f64) -> Dual {
        Dual::constant(value)
    }
}

impl<T: Into<Dual>> Add<T> for Dual {
    type Output = Dual;

    fn add(self, other: T) -> Dual {
        let other = other.into();
        Dual { value: self.value + other.value, derivative: self.derivative + other.derivative }
    }
}

impl<T: Into<Dual>> Sub<T> for Dual {
    type Output = Dual;

    fn sub(self, other: T) -> Dual {
        self + -other.into()
    }
}

impl<T: Into<Dual>> Mul<T> for Dual {
    type Output = Dual;

    fn mul(self, other: T) -> Dual {
        let other = other.into();
        let by_self = self.chain(0.0, other.value).derivative;
        Dual {
            value: self.value * other.value,
            derivative: by_self + other.chain(0.0, self.value).derivative,
        }
    }
}

impl Neg for Dual {
    type Output = Dual;

    fn neg(self) -> Dual {
        Dual { value: -self.value, derivative: -self.derivative }
    }
}
