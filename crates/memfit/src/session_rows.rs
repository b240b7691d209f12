//! Steps of a runner over rows that a caller brings: a session's own steps, and those of its validation.

use memfit_data::{Field, Source};
use memfit_ir::{Graph, TensorId};
use memfit_run::{RunError, Runner, StepInput, StepRecord};

use crate::data::{Feeder, explain};
use crate::session::StepOf;
use crate::{Error, Quiet};

/// What the rows of a graph have, and which come next.
pub(crate) struct SessionRows {
    pub(crate) fields: Vec<Field>,
    inputs: Vec<TensorId>,
    /// The next step, where the caller announced it.
    promised: Option<(u64, usize)>,
}

impl SessionRows {
    /// The rows that a graph takes.
    pub(crate) fn of(graph: &Graph) -> SessionRows {
        let field = |id: &TensorId| {
            let tensor = &graph.tensors[id.0];
            Field { name: tensor.name.clone(), dims: tensor.shape.dims.clone(), dtype: tensor.dtype }
        };
        let fields = graph.inputs.iter().map(field).collect();
        SessionRows { fields, inputs: graph.inputs.clone(), promised: None }
    }

    /// Takes a step that was announced to be another one after all.
    pub(crate) fn forget_next(&mut self, runner: &mut Runner) {
        self.promised = None;
        runner.forget_next();
    }

    /// Begins a step over rows of a source with these fields.
    pub(crate) fn begin(
        &mut self,
        runner: &mut Runner,
        source: &mut dyn Source,
        step: StepOf,
        input: StepInput,
    ) -> Result<(), Error> {
        let promised = std::mem::replace(&mut self.promised, step.next);
        if promised.is_some() && promised != Some((step.start, step.rows)) {
            runner.forget_next();
        }
        let (start, next, observer) = (step.start, step.next, &mut Quiet);
        let mut feeder = Feeder { source, inputs: &self.inputs, start, next, epochs: [0; 2], observer };
        let result = runner.begin(input, &mut feeder);
        result.map_err(|error| explain(error, &runner.plan().problem().graph, source, start, step.rows))
    }

    /// Ends the oldest step in flight, whose rows begin there in this source.
    pub(crate) fn end(
        &self,
        runner: &mut Runner,
        source: &mut dyn Source,
        start: u64,
    ) -> Result<StepRecord, RunError> {
        let (inputs, observer) = (&self.inputs, &mut Quiet);
        runner.end(&mut Feeder { source, inputs, start, next: None, epochs: [0; 2], observer })
    }
}
