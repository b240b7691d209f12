//! Rules of losses and metrics: what targets must be beside predictions.

use super::{Rule, ShapeError};
use crate::Operand::{self, Prediction, SampleWeights, Target};
use crate::{Counts, DType, LossKind, Metric, RowValue, Shape, Thresholds};

impl Rule<'_> {
    pub(super) fn targets(&self, sparse: bool) -> Result<(), ShapeError> {
        let (prediction, target) = (self.floats(Prediction)?, self.tensor(Target));
        if !sparse {
            return self.require(
                target.dtype == DType::F32 && target.shape == *prediction,
                &format!("f32 targets of {prediction}"),
            );
        }
        let mut dims = prediction.dims.clone();
        self.require(!dims.is_empty(), "predictions with an axis of classes")?;
        dims.pop();
        self.require(
            target.dtype == DType::I32 && target.shape.dims == dims,
            "class numbers (i32) without the axis of classes",
        )
    }

    pub(super) fn loss_axes(&self, kind: &LossKind) -> Result<(), ShapeError> {
        let prediction = self.floats(Prediction)?;
        match kind.of_samples() {
            LossKind::CategoricalCrossentropy { .. }
            | LossKind::UnitCategoricalCrossentropy { .. }
            | LossKind::SparseCategoricalCrossentropy { .. } => {
                self.require(prediction.last() >= 2, "at least two classes in the last axis")?;
            }
            LossKind::MeanSquaredError
            | LossKind::MeanAbsoluteError
            | LossKind::Huber { .. }
            | LossKind::BinaryCrossentropy { .. }
            | LossKind::Reduced { .. }
            | LossKind::Distance(_) => {}
        }
        if let LossKind::Distance(distance) = kind.of_samples()
            && let Some(axes) = distance.axes_overlapped().filter(|axes| 0 < *axes)
        {
            self.require(axes == prediction.dims.len(), &format!("{axes} axes after the batch"))?;
        }
        if let Some(weights) = self.given(SampleWeights) {
            let of_rows = weights.shape == Shape::rows([]);
            let samples = prediction.dims.len().saturating_sub(1);
            let by_row = matches!(kind.of_samples(), LossKind::Distance(distance) if distance.is_overlap());
            let of_samples = !by_row && weights.shape == self.like(Prediction, &prediction.dims[..samples]);
            self.require(
                weights.dtype == DType::F32 && (of_rows || of_samples) && !kind.mixes_rows(),
                "one f32 weight a row, or one a sample, and none where the batch has one loss",
            )?;
        }
        Ok(())
    }

    pub(super) fn metric_axes(&self, metric: &Metric) -> Result<(), ShapeError> {
        let classes = self.floats(Prediction)?.last();
        match metric {
            Metric::Mean(RowValue::Loss(kind)) => {
                self.require(!kind.mixes_rows(), "a loss of rows: one of the whole batch is no metric here")?;
                self.loss_axes(kind)?;
            }
            Metric::Counts(Counts { class: Some(class), .. }) => {
                self.require(*class < classes, &format!("a class {class} in the last axis"))?;
            }
            Metric::Counts(Counts { labels: Some(labels), .. }) => {
                let fits = labels.len() == classes && self.floats(Prediction)?.dims.len() == 1;
                self.require(fits, &format!("predictions with one axis, of {} labels", labels.len()))?;
            }
            Metric::Counts(Counts { thresholds: Thresholds::At(thresholds), .. }) => {
                self.require(!thresholds.is_empty(), "at least one threshold")?;
            }
            Metric::Counts(Counts { thresholds: Thresholds::Even { count, .. }, .. }) => {
                self.require(2 <= *count, "at least two thresholds")?;
            }
            Metric::Iou(iou) => {
                let known = iou.wanted.iter().all(|class| *class < iou.classes);
                self.require(known, &format!("classes below {}", iou.classes))?;
            }
            Metric::FBeta(_) => {
                self.require(
                    self.floats(Prediction)?.dims.len() == 1,
                    "predictions with one axis, of classes",
                )?;
            }
            Metric::Mean(_) | Metric::RootMeanSquaredError => {}
        }
        match self.given(SampleWeights) {
            Some(weights) => {
                let prediction = self.floats(Prediction)?;
                let samples = &prediction.dims[..prediction.dims.len().saturating_sub(1)];
                let fits =
                    weights.shape == Shape::rows([]) || weights.shape == self.like(Prediction, samples);
                self.require(weights.dtype == DType::F32 && fits, "one f32 weight a row, or one a sample")
            }
            None => Ok(()),
        }
    }

    pub(super) fn ids(&self, operand: Operand) -> Result<(), ShapeError> {
        match self.tensor(operand).dtype {
            DType::I32 | DType::F32 => Ok(()),
            DType::F16 | DType::BF16 | DType::I64 | DType::U8 | DType::Bool => {
                Err(self.error("ids as i32 (or whole f32)"))
            }
        }
    }
}
