//! Recurrent layers: one op runs a cell over all steps of a sequence.

/// A recurrent layer without its input's product, which is a dense op before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrent {
    /// What a step computes.
    pub cell: Cell,
    /// Whether the last step is read first.
    pub reads_backwards: bool,
    /// Whether the state after the step read first is written last.
    pub writes_backwards: bool,
    /// Whether there is a mask, which is the last operand: steps that do not count leave the state as it is.
    pub masked: bool,
    /// Whether states are given to begin with, and not zeros: in one more row of the input, `h` and the
    /// LSTM's `c` at its front. They are copied after the states of all steps, where backward reads them.
    pub starts: bool,
    /// Whether the LSTM's own state after the last step stands in the last row of the states.
    pub ends: bool,
}

impl Recurrent {
    /// Rows of the input after those of the steps.
    pub fn rows_after_input(&self) -> usize {
        usize::from(self.starts)
    }

    /// Rows of the states after those of the steps: `h` and `c` before the first one, `c` after the last.
    pub fn rows_after_states(&self) -> usize {
        let own = usize::from(matches!(self.cell, Cell::Lstm { .. }));
        usize::from(self.starts) * (1 + own) + usize::from(self.ends) * own
    }
}

/// What one step computes from its input `x`, which has a part for each gate, and from the state `h` before
/// it.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// `h ← f(x + h kernel + bias)`.
    Simple {
        /// The function `f`.
        activation: Gate,
    },
    /// Gates `i, f, g, o`: `c ← f c + i g`, `h ← o activation(c)`.
    Lstm {
        /// Of the candidate `g` and of the cell's state `c`.
        activation: Gate,
        /// Of the gates `i`, `f` and `o`.
        recurrent: Gate,
    },
    /// Gates `z, r, g`: `h ← z h + (1 − z) g`, where `g` sees what `r` lets through of `h`.
    Gru {
        /// Of the candidate `g`.
        activation: Gate,
        /// Of the gates `z` and `r`.
        recurrent: Gate,
        /// Whether `r` comes after the product with the kernel; there are two biases then, before and after
        /// it.
        reset_after: bool,
    },
}

/// A function whose derivative follows from its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x`.
    Linear,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

impl Cell {
    /// Parts of an input, of the kernel's columns and of a bias.
    pub fn gates(&self) -> usize {
        match self {
            Cell::Simple { .. } => 1,
            Cell::Lstm { .. } => 4,
            Cell::Gru { .. } => 3,
        }
    }

    /// How many biases there are.
    pub fn biases(&self) -> usize {
        match self {
            Cell::Gru { reset_after: true, .. } => 2,
            Cell::Simple { .. } | Cell::Lstm { .. } | Cell::Gru { .. } => 1,
        }
    }

    /// Values of every unit and step that backward reads, besides the state: the gates, and the LSTM's own state or the GRU's
    /// product for its candidate.
    pub fn kept(&self) -> usize {
        match self {
            Cell::Simple { .. } => 0,
            Cell::Lstm { .. } => 5,
            Cell::Gru { reset_after: true, .. } => 4,
            Cell::Gru { reset_after: false, .. } => 3,
        }
    }
}
