//! Values that leave a session for good: tensor by tensor, and the pages of each go back to the system at
//! once.

use memfit_ir::TensorId;

use crate::Session;
use crate::state::Holds;
use crate::values::initialize_state;

impl Session {
    /// Writes the first values of the optimizer's state, for a caller who has none yet.
    pub fn initialize_state(&mut self) {
        initialize_state(self.runner_mut());
    }

    /// Begins to move the variables to the caller: what holds nothing between steps goes back to the system.
    /// No step can follow.
    pub fn begin_handover(&mut self) {
        self.runner_mut().give_back_transient();
    }

    /// Gives the pages of a variable that was read back to the system, if no later variable reads them too.
    /// Variables are moved in their order.
    pub fn give_back(&mut self, variable: usize) {
        let Some(tensor) = self.tensor_of(variable) else { return };
        let later = variable + 1..self.variable_count();
        if !later.into_iter().any(|later| self.tensor_of(later) == Some(tensor)) {
            self.runner_mut().give_back_tensor(tensor);
        }
    }

    /// The tensor in whose slot a variable stands.
    fn tensor_of(&self, variable: usize) -> Option<TensorId> {
        match self.holds(variable) {
            Holds::Tensor(tensor) | Holds::Count(tensor) | Holds::Sum { tensor, .. } => Some(tensor),
            Holds::Iteration
            | Holds::LearningRate
            | Holds::Nothing
            | Holds::NadamProduct { .. }
            | Holds::Placeholder => None,
        }
    }
}
