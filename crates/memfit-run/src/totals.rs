//! The losses and metrics of an epoch's steps, added up: the same bytes however long the epoch is.

use memfit_ir::{Graph, Metric, Op, TensorId};

/// Loss and metrics over the rows of several steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    /// Rows.
    pub rows: u64,
    /// The mean loss over the rows, all outputs together.
    pub loss: f64,
    /// The losses of the outputs where there are several, without their factors, and after them the metrics.
    pub values: Vec<f64>,
}

/// The running sums of an epoch, as a checkpoint keeps them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpochSums {
    /// Rows of the epoch so far.
    pub rows: u64,
    /// Sums of losses and metrics, in the graph's order.
    pub sums: Vec<f64>,
}

/// Sums over steps, and where a step leaves its own.
pub(crate) struct Totals {
    rows: u64,
    loss: f64,
    losses: Vec<OutputLoss>,
    metrics: Vec<MetricSums>,
}

struct OutputLoss {
    tensor: TensorId,
    factor: f32,
    total: f64,
}

struct MetricSums {
    tensor: TensorId,
    metric: Metric,
    /// How many numbers it is.
    numbers: usize,
    /// Of the last step.
    step: Vec<f64>,
    totals: Vec<f64>,
}

impl MetricSums {
    fn values(&self, sums: &[f64]) -> impl Iterator<Item = f64> {
        (0..self.numbers).map(|number| self.metric.value(sums, number))
    }
}

impl Totals {
    /// Nothing yet, with room for what a graph sums up.
    pub(crate) fn of(graph: &Graph) -> Totals {
        let (mut losses, mut metrics) = (Vec::new(), Vec::new());
        // Slices of a batch add to the same sums.
        let mut known: Vec<TensorId> = Vec::new();
        for node in &graph.nodes {
            let is_sum = matches!(node.op, Op::Loss(_) | Op::Metric(_));
            if is_sum && known.contains(&node.updates[0]) {
                continue;
            }
            known.extend(node.updates.first().filter(|_| is_sum));
            if let Op::Loss(loss) = &node.op {
                losses.push(OutputLoss { tensor: node.updates[0], factor: loss.weight, total: 0.0 });
            } else if let Op::Metric(metric) = &node.op {
                let prediction = &graph.tensors[node.inputs[0].0].shape;
                let (none, numbers) = (vec![0.0; metric.sums(prediction)], metric.numbers(prediction));
                let (tensor, metric) = (node.updates[0], metric.clone());
                metrics.push(MetricSums { tensor, metric, numbers, step: none.clone(), totals: none });
            }
        }
        Totals { rows: 0, loss: 0.0, losses, metrics }
    }

    /// Where a step leaves its losses.
    pub(crate) fn losses(&self) -> impl Iterator<Item = TensorId> {
        self.losses.iter().map(|loss| loss.tensor)
    }

    /// Resets all sums.
    pub(crate) fn clear(&mut self) {
        (self.rows, self.loss) = (0, 0.0);
        self.losses.iter_mut().for_each(|loss| loss.total = 0.0);
        self.metrics.iter_mut().for_each(|metric| metric.totals.fill(0.0));
    }

    /// Adds a step of `rows` rows, whose sums are read from their tensors; `penalties` are what weights add
    /// to its loss. Returns the values of this step alone.
    pub(crate) fn add<'a>(
        &mut self,
        rows: usize,
        penalties: f64,
        sums: impl Fn(TensorId) -> &'a [f32],
    ) -> Means {
        let mut step = Means { rows: rows as u64, loss: penalties, values: Vec::new() };
        let several = 1 < self.losses.len();
        for loss in &mut self.losses {
            let mean = f64::from(sums(loss.tensor)[0]);
            step.loss += mean;
            let plain = if loss.factor == 0.0 { 0.0 } else { mean / f64::from(loss.factor) };
            loss.total += plain * rows as f64;
            if several {
                step.values.push(plain);
            }
        }
        for metric in &mut self.metrics {
            let parts = metric.step.iter_mut().zip(&mut metric.totals).zip(sums(metric.tensor));
            for ((step, total), sum) in parts {
                *step = f64::from(*sum);
                *total += *step;
            }
            step.values.extend(metric.values(&metric.step));
        }
        self.rows += step.rows;
        self.loss += step.loss * rows as f64;
        step
    }

    /// All sums, in a fixed order: what a checkpoint keeps of an epoch.
    pub(crate) fn state(&self) -> EpochSums {
        let losses = self.losses.iter().map(|loss| loss.total);
        let metrics = self.metrics.iter().flat_map(|metric| metric.totals.iter().copied());
        EpochSums { rows: self.rows, sums: std::iter::once(self.loss).chain(losses).chain(metrics).collect() }
    }

    /// Goes on from sums of the same graph; says whether they are as many as the graph has.
    pub(crate) fn restore(&mut self, state: &EpochSums) -> bool {
        let losses = self.losses.iter_mut().map(|loss| &mut loss.total);
        let metrics = self.metrics.iter_mut().flat_map(|metric| metric.totals.iter_mut());
        let places: Vec<&mut f64> = std::iter::once(&mut self.loss).chain(losses).chain(metrics).collect();
        if places.len() != state.sums.len() {
            return false;
        }
        self.rows = state.rows;
        places.into_iter().zip(&state.sums).for_each(|(place, sum)| *place = *sum);
        true
    }

    /// What all steps gave since it was cleared.
    pub(crate) fn means(&self) -> Means {
        let rows = self.rows.max(1) as f64;
        let several = 1 < self.losses.len();
        let losses = self.losses.iter().filter(|_| several).map(|loss| loss.total / rows);
        let metrics = self.metrics.iter().flat_map(|metric| metric.values(&metric.totals));
        Means { rows: self.rows, loss: self.loss / rows, values: losses.chain(metrics).collect() }
    }
}
