//! A job whose model, data and device are open.

use memfit_formats::{Mode, Precision};
use memfit_grad::{Training, training_graph};

use super::{Asked, Threads, graph_at, training, with_graph};
use crate::precision::PrecisionSummary;
use crate::saving::Files;
use crate::state::{self, Variable};
use crate::validation::Unplanned;
use crate::{Compiled, Error, Job, ModelFile, compiled};

/// A job whose model and data are open, before anything is planned.
pub(super) struct Opened {
    pub(super) model: ModelFile,
    pub(super) compiled: Compiled,
    pub(super) training: Training,
    pub(super) metrics: Vec<String>,
    pub(super) resumes: Option<Vec<Variable>>,
    pub(super) saving: Files,
    pub(super) asked: Asked,
    pub(super) precision: Option<PrecisionSummary>,
    pub(super) validation: Option<Unplanned>,
}

impl Opened {
    /// Opens the model, builds its training graph, and opens rows and device for it.
    pub(super) fn of(job: &Job, threads: Threads) -> Result<Opened, Error> {
        let model = ModelFile::open(job, Mode::Training)?;
        let forward = &model.model.graph;
        let compiled = compiled(job, &model)?;
        let (training, metrics) = training(job, forward, &compiled)?;
        let graph = training_graph(forward, &training)?;
        state::require_axes(&model, &compiled.optimizer)?;
        let variables = state::optimizer_variables(&model, &graph, &compiled.optimizer);
        let resumes = state::resumes(&model, &variables, &compiled.optimizer).then_some(variables);
        let saving = Files::plan(job, &model, &graph, &compiled)?;
        let asked = Asked::of(job, graph, threads, job.pinned()?)?;
        let validation = Unplanned::of(job, &model, &*asked.setup)?;
        let precision = PrecisionSummary::of(&asked.problem, || {
            let graph = graph_at(job, Precision::Float32, &training)?;
            Some(with_graph(&*asked.setup, &asked.problem, graph))
        });
        Ok(Opened { model, compiled, training, metrics, resumes, saving, asked, precision, validation })
    }
}
