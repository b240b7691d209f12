//! Time against bytes as one self-contained page: a template that draws, and the points as JSON inside it.

use memfit_ir::Bytes;
use serde_json::{Value, json};

use crate::SweepPoint;

const TEMPLATE: &str = include_str!("curve.html");

/// Where the template wants the data.
const MARK: &str = "{{data}}";

/// The page's text. It refers to nothing outside itself.
pub fn sweep_html(job: &str, budget: Bytes, points: &[SweepPoint]) -> String {
    let (before, after) = TEMPLATE.split_once(MARK).expect("the template has a place for its data");
    // Only `<` can end a script element, and in JSON it stands inside strings alone.
    let data = data(job, budget, points).to_string().replace('<', "\\u003c");
    [before, &data, after].concat()
}

fn data(job: &str, budget: Bytes, points: &[SweepPoint]) -> Value {
    json!({
        "job": job,
        "budget": budget.0,
        "lead": lead(budget, points),
        "points": points.iter().map(SweepPoint::to_json).collect::<Value>(),
    })
}

/// What the curve says, in words.
fn lead(budget: Bytes, points: &[SweepPoint]) -> String {
    let (Some(fastest), Some(smallest)) = (points.first(), points.last()) else {
        return "There is no plan.".to_owned();
    };
    let slower = |point: &SweepPoint| match (point.time_relative - 1.0) * 100.0 {
        percent if percent < 0.05 => "as fast as can be".to_owned(),
        percent => format!("{percent:.1} % slower"),
    };
    let whole = format!(
        "Without a budget it takes {}. It trains from {} on, {}.",
        fastest.budget,
        smallest.budget,
        slower(smallest)
    );
    let here = match SweepPoint::bought(points, budget) {
        Some(point) => {
            format!("The budget of {budget} buys the plan that needs {}, {}.", point.budget, slower(point))
        }
        None => format!("The budget of {budget} buys none of these plans."),
    };
    format!("{whole} {here}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(budget: u64, time_relative: f64) -> SweepPoint {
        SweepPoint {
            budget: Bytes(budget),
            bytes_peak: Bytes(budget / 2),
            bytes_activations: Bytes(budget / 4),
            time_relative,
            time_bound: 1.0,
            micro_batches: 1,
            slices: 1,
            nodes_recomputed: 3,
            values_folded: 2,
            gradients_applied: 0,
            bytes_offloaded: Bytes::ZERO,
        }
    }

    #[test]
    fn the_page_holds_every_point_and_names_cannot_break_out_of_it() {
        let points = [point(4096, 1.0), point(2048, 1.25)];
        let page = sweep_html("</script><b>x", Bytes(3000), &points);
        assert!(!page.contains("</script><b>x"));
        assert_eq!(page.matches("</script").count(), TEMPLATE.matches("</script").count());
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(data["points"][1], points[1].to_json());
        assert_eq!((&data["budget"], &data["job"]), (&json!(3000), &json!("</script><b>x")));
        assert!(page.contains("buys the plan that needs 2.00 KiB, 25.0 % slower"));
        assert!(sweep_html("x", Bytes(2047), &points).contains("buys none of these plans"));
    }
}
