//! Metrics of many sums: what lies between thresholds, and how classes meet.

use memfit_ir::Operand::{Prediction, Sums, Target};
use memfit_ir::{Bytes, ClassOf, Counts, FBeta, Iou, Thresholds};

use super::elementwise::number;
use super::loss::Weights;
use crate::call::{Call, THREADS, blocks_for, int, long};
use crate::work::{Argument, Kernel, Lowered, Source, Work};

const TEXT: &str = include_str!("../kernels/confusion.cu");

/// Sums that a block keeps in its own memory, at most.
const STORED_MOST: usize = 2048;

/// Blocks, each of which adds its sums to those of all in the end.
const BLOCKS_MOST: u32 = 512;

/// Positives and negatives, by how many thresholds their predictions are above.
pub(super) fn counts(call: &Call<'_>, counts: &Counts) -> Lowered {
    let Counts { thresholds, class, top_k, from_logits, labels, .. } = counts;
    let mut defines = String::from("#define COUNTS\n");
    let is_open = match thresholds {
        Thresholds::At(thresholds) => {
            let list: Vec<String> = thresholds.iter().map(|threshold| number(*threshold)).collect();
            defines += &format!("#define THRESHOLDS {}\n", list.join(", "));
            false
        }
        Thresholds::Even { count, open } => {
            defines += &format!("#define EVEN {count}\n");
            *open
        }
    };
    let class_or_all = class.map_or("-1".to_owned(), |class| class.to_string());
    for (name, value) in [
        ("OPEN", u8::from(is_open).to_string()),
        ("BUCKETS", thresholds.stretches().to_string()),
        ("CLASS", class_or_all),
        ("TOP_K", top_k.unwrap_or(0).to_string()),
        ("FROM_LOGITS", u8::from(*from_logits).to_string()),
        ("LABELS", u8::from(labels.is_some()).to_string()),
    ] {
        defines += &format!("#define {name} {value}\n");
    }
    let classes = call.input(Prediction).shape().last().max(1);
    count_items(call, &defines, if class.is_some() { 1 } else { classes })
}

/// Elements by their class and the one predicted; targets may be numbers.
pub(super) fn classes_met(call: &Call<'_>, iou: &Iou, numbered: bool) -> Lowered {
    let by_argmax = iou.prediction == ClassOf::Largest;
    let predicted = match iou.prediction {
        ClassOf::AtLeast(threshold) => format!("((p) >= {} ? 1 : 0)", number(threshold)),
        ClassOf::Number | ClassOf::Largest => "whole(p)".to_owned(),
    };
    let ignored = iou.ignored.map_or("false".to_owned(), |ignored| format!("((of) == {ignored}ll)"));
    let defines = format!(
        "#define IOU {}\n#define BY_ARGMAX {}\n#define NUMBERED {}\n#define PREDICTED(p) {predicted}\n#define IGNORED(of) {ignored}\n",
        iou.classes,
        u8::from(by_argmax),
        u8::from(numbered),
    );
    let classes = call.input(Prediction).shape().last().max(1);
    count_items(call, &defines, if by_argmax { 1 } else { classes })
}

/// Rows by the classes that they have and those predicted.
pub(super) fn classes_predicted(call: &Call<'_>, score: FBeta) -> Lowered {
    // A sample that predicts nothing at all predicts no class.
    let predicted = score.threshold.map_or("(p >= most && fabsf(p) > 1e-9f)".to_owned(), |threshold| {
        format!("(p > {})", number(threshold))
    });
    count_items(call, &format!("#define FBETA\n#define HAS_FACTORS 1\n#define PREDICTED {predicted}\n"), 1)
}

/// Counts items, of which a sample has `items_of_sample`.
fn count_items(call: &Call<'_>, defines: &str, items_of_sample: usize) -> Lowered {
    let (prediction, target, sums) = (call.input(Prediction), call.input(Target), call.update(Sums));
    let classes = prediction.shape().last().max(1);
    let in_row = (prediction.shape().elements_per_row() / classes).max(1);
    let Weights { pointer: weights, of_row, count } = Weights::new(call);
    let stored = if sums.elements <= STORED_MOST { sums.elements } else { 0 };
    let defines = format!(
        "typedef {} X;\ntypedef {} T;\n#define STORED {stored}\n{defines}",
        prediction.c_type(),
        target.c_type()
    );
    let source = Source { text: TEXT, defines };
    let mut lowered = Lowered::default();
    let bytes = Bytes::of::<u64>(sums.elements);
    let parts = lowered.scratch(bytes);
    let unit = Argument::At(lowered.scratch(Bytes::of::<f64>(1)));
    lowered.work.push(Work::Zero { to: parts, bytes });
    let parts = Argument::At(parts);
    let mut launch = |entry, blocks, arguments| {
        lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads: THREADS, arguments });
    };
    let elements = long(target.elements);
    launch("count_unit", [1, 1, 1], vec![weights, target.pointer(), unit, long(count), elements]);
    let items = prediction.elements / classes * items_of_sample;
    let [blocks, y, z] = blocks_for(items);
    let mut arguments = vec![prediction.pointer(), target.pointer(), weights, parts, unit];
    arguments.extend([long(items), long(in_row / of_row), int(classes)]);
    launch("count_items", [blocks.min(BLOCKS_MOST), y, z], arguments);
    let arguments = vec![parts, unit, sums.pointer(), long(sums.elements), call.overwrite()];
    launch("write_counts", blocks_for(sums.elements), arguments);
    lowered
}
