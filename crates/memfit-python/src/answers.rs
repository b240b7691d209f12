//! Answers before anything runs: the plan, the largest batch, the curve.

use memfit::{
    Costs, Error, Prepared, Purpose, Report, SECONDS_GLANCE, SweepPoint, batch_curve, html, plan_table,
    prepare, prepare_without_hints, sweep_html,
};
use pyo3::prelude::*;
use serde_json::json;

use crate::request::Request;
use crate::without_python;

/// A plan as text, figures and page.
#[pyclass(frozen, module = "memfit._engine")]
pub struct PlanAnswer {
    report: Report,
}

#[pymethods]
impl PlanAnswer {
    /// The table that the command prints.
    fn table(&self) -> String {
        plan_table(&self.report.summary)
    }

    /// The figures as JSON.
    fn json(&self) -> String {
        self.report.summary.to_json().to_string()
    }

    /// The timeline as a page that refers to nothing outside itself.
    fn html(&self) -> String {
        html(&self.report)
    }
}

/// Plans training.
#[pyfunction]
pub fn plan(py: Python<'_>, request: &str) -> PyResult<PlanAnswer> {
    without_python(py, || {
        let request = Request::parse(request)?;
        let mut job = request.job()?;
        job.caller.seconds_measuring = Some(SECONDS_GLANCE);
        let prepared = prepare(&job, request.threads)?;
        let report = Report::of_plan(&prepared);
        prepared.outcome?;
        Ok(PlanAnswer { report })
    })
}

/// The largest batch that trains without a split, and the bytes that batches need, as JSON.
#[pyfunction]
pub fn largest_batch(py: Python<'_>, request: &str) -> PyResult<String> {
    without_python(py, || {
        let curve = batch_curve(&prepared(request, Some(Costs::Analytic))?);
        let points: Vec<_> = curve.points.iter().map(|(batch, bytes)| json!([batch, bytes.0])).collect();
        let answer = json!({"budget": curve.budget.0, "largest_batch": curve.largest, "points": points});
        Ok(answer.to_string())
    })
}

/// Time against bytes: budget and points as JSON, and the page that draws them.
#[pyfunction]
pub fn sweep(py: Python<'_>, request: &str, name: &str) -> PyResult<(String, String)> {
    without_python(py, || {
        let prepared = prepared(request, None)?;
        let (points, budget) = (memfit::sweep(&prepared), prepared.problem.budget.total);
        let all: Vec<_> = points.iter().map(SweepPoint::to_json).collect();
        let answer = json!({"budget": budget.0, "points": all, "costs": prepared.costs.costs.name()});
        Ok((answer.to_string(), sweep_html(name, budget, &points)))
    })
}

/// Names and dimensions of a model's weights, in Keras's order.
#[pyfunction]
pub fn weights(py: Python<'_>, request: &str) -> PyResult<Vec<(String, Vec<usize>)>> {
    without_python(py, || {
        let request = Request::parse(request)?;
        let session = memfit::Session::plan(&request.job()?, Purpose::Prediction, request.threads)?;
        Ok(session.variables().map(|variable| (variable.name.to_owned(), variable.dims.to_vec())).collect())
    })
}

fn prepared(request: &str, costs: Option<Costs>) -> Result<Prepared<'static>, Error> {
    let request = Request::parse(request)?;
    let mut job = request.job()?;
    job.memory.costs = costs.unwrap_or(job.memory.costs);
    let mut prepared = prepare_without_hints(&job, request.threads)?;
    if costs.is_none() && job.memory.costs == Costs::Measured {
        prepared.measure_costs(None);
    }
    Ok(prepared)
}
