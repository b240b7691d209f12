//! Optimizers: one pass over gradient, weight and state, by Keras's formulas.

use memfit_ir::Operand::{FoundInf, Gradient, SquaredNorm, Squares, State, Sum, Weight};
use memfit_ir::{Accumulate, Average, Bytes, Clip, Named, Update, UpdateRule};

use super::elementwise::number;
use super::whole_update;
use crate::call::{Call, Name, THREADS, blocks_for, long};
use crate::work::{Argument, Kernel, Lowered, Source, Work};

const TEXT: &str = include_str!("../kernels/update.cu");

/// Changes one weight, its state and its average.
pub(super) fn update(call: &Call<'_>, update: &Update) -> Lowered {
    let (coefficients, rule) = match rule(&update.rule) {
        Method::Elementwise(coefficients, rule) => (coefficients, rule),
        Method::Lamb(numbers) => return whole_update::lamb(call, update, numbers),
        Method::Adafactor => return whole_update::adafactor(call, update),
    };
    let defines = format!("{}#define COEFFICIENTS {coefficients}\n#define RULE {rule}\n", defines(update).0);
    // The grid is that of a launch with others; the context goes to all of them.
    let arguments = operands(call).into_iter().filter(|argument| *argument != Argument::Context);
    let kernel = Kernel {
        source: Source { text: TEXT, defines },
        entry: "update_many",
        blocks: [0; 3],
        threads: THREADS,
        arguments: arguments.collect(),
    };
    Lowered { work: vec![Work::Update(kernel)], workspace: Bytes::ZERO }
}

/// What all rules have defined, and whether gradients are clipped by a norm.
pub(super) fn defines(update: &Update) -> (String, bool) {
    let (clip, by_norm) = match update.clip {
        Clip::None => (String::new(), false),
        Clip::Value(limit) => (format!("limit = {};", number(limit)), false),
        Clip::Norm(limit) => {
            let limit = number(limit);
            let code = format!(
                "float length = sqrtf(*norm) / scale; factor = length <= {limit} ? 1.0f : {limit} / length;"
            );
            (code, true)
        }
    };
    let defines = format!(
        "#define STEPS {}ull\n#define CLIP {clip}\n#define WEIGHT_DECAY {}\n#define AVERAGE {}\n",
        update.steps,
        number(update.weight_decay),
        update.average.as_ref().map_or(String::new(), average),
    );
    (defines, by_norm)
}

/// The arguments with which every update begins.
pub(super) fn operands(call: &Call<'_>) -> Vec<Argument> {
    let (gradient, weight) = (call.input(Gradient), call.update(Weight));
    let updated =
        |operand: Named| call.update_if_given(operand).map_or(Argument::Null, |updated| updated.pointer());
    let [first, second, third] = [0, 1, 2].map(|index| updated((State, index).into()));
    vec![
        gradient.pointer(),
        call.pointer_if_given(SquaredNorm),
        call.pointer_if_given(FoundInf),
        weight.pointer(),
        first,
        second,
        third,
        updated(Name::Average.into()),
        Argument::Context,
        long(weight.elements),
    ]
}

/// Adds a gradient to those of the steps before.
pub(super) fn accumulate(call: &Call<'_>, accumulate: &Accumulate) -> Lowered {
    let (gradient, sum) = (call.input(Gradient), call.update(Sum));
    let arguments = vec![
        gradient.pointer(),
        call.pointer_if_given(FoundInf),
        sum.pointer(),
        Argument::Context,
        long(gradient.elements),
        Argument::Long(accumulate.steps.cast_signed()),
        call.overwrite(),
    ];
    let source = Source { text: TEXT, defines: String::new() };
    let blocks = blocks_for(gradient.elements);
    Kernel { source, entry: "accumulate", blocks, threads: THREADS, arguments }.into()
}

/// Adds the gradients of the steps before to this step's.
pub(super) fn add_accumulated(call: &Call<'_>, steps: u64) -> Lowered {
    let (sum, gradient) = (call.input(Sum), call.update(Gradient));
    let arguments = vec![
        sum.pointer(),
        gradient.pointer(),
        Argument::Context,
        long(gradient.elements),
        Argument::Long(steps.cast_signed()),
        call.overwrite(),
    ];
    let source = Source { text: TEXT, defines: String::new() };
    let blocks = blocks_for(gradient.elements);
    Kernel { source, entry: "add_accumulated", blocks, threads: THREADS, arguments }.into()
}

/// Keeps the gradients so far for the next step.
pub(super) fn keep_accumulated(call: &Call<'_>) -> Lowered {
    let (gradient, sum) = (call.input(Gradient), call.update(Sum));
    let arguments = vec![
        gradient.pointer(),
        call.input(FoundInf).pointer(),
        sum.pointer(),
        Argument::Context,
        long(gradient.elements),
    ];
    let source = Source { text: TEXT, defines: String::new() };
    let blocks = blocks_for(gradient.elements);
    Kernel { source, entry: "keep_accumulated", blocks, threads: THREADS, arguments }.into()
}

/// Lets state follow sums of squares: see the op.
pub(super) fn correct_squares(call: &Call<'_>, factor: f32) -> Lowered {
    let (gradient, squares, state) = (call.input(Gradient), call.input(Squares), call.update(State));
    let arguments = vec![
        gradient.pointer(),
        squares.pointer(),
        state.pointer(),
        Argument::Context,
        long(gradient.elements),
        Argument::Float(factor),
    ];
    let source = Source { text: TEXT, defines: String::new() };
    let blocks = blocks_for(gradient.elements);
    Kernel { source, entry: "correct_squares", blocks, threads: THREADS, arguments }.into()
}

/// The average follows the weight; where it is due, the weight becomes the average.
fn average(average: &Average) -> String {
    let every = average
        .overwrite_every
        .map_or(String::new(), |every| format!("if ((iteration + 1) % {every}ull == 0) w = average[i];"));
    format!(
        "float kept = iteration == 0 ? 0.0f : {}; average[i] = kept * average[i] + (1.0f - kept) * w; {every}",
        number(average.momentum)
    )
}

/// How a rule goes over a weight.
enum Method {
    /// Element by element: what one thread computes of a step into `k`, and what every element does. `g` is
    /// its gradient, `w` its weight, `s1` to `s3` the rule's state.
    Elementwise(String, String),
    /// With norms of the whole weight, by both betas and epsilon.
    Lamb([f32; 3]),
    /// With means over rows and columns.
    Adafactor,
}

fn rule(rule: &UpdateRule) -> Method {
    let double = |value: f32| format!("(double){}", number(value));
    let rest = |beta: f32| format!("(1.0 - pow({}, step))", double(beta));
    const MEAN: &str = "float m = s1[i]; m += (g - m) * k[1]; s1[i] = m;";
    const SQUARES: &str = "float v = s2[i]; v += (g * g - v) * k[2]; s2[i] = v;";
    let (coefficients, code) = match *rule {
        UpdateRule::Sgd { momentum: 0.0, .. } => (String::new(), "w -= rate * g;".to_owned()),
        UpdateRule::Sgd { momentum, nesterov } => {
            let momentum = number(momentum);
            let along = if nesterov { format!("{momentum} * v - ahead") } else { "v".to_owned() };
            let code = format!(
                "float ahead = rate * g; float v = {momentum} * s1[i] - ahead; s1[i] = v; w += {along};"
            );
            (String::new(), code)
        }
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad } => {
            let coefficients = format!(
                "k[0] = (float)((double)rate * sqrt({}) / {}); k[1] = {}; k[2] = {};",
                rest(beta_2),
                rest(beta_1),
                number(1.0 - beta_1),
                number(1.0 - beta_2)
            );
            let max = if amsgrad { "float most = s3[i]; v = v > most ? v : most; s3[i] = v;" } else { "" };
            let code = format!("{MEAN} {SQUARES} {max} w -= m * k[0] / (sqrtf(v) + {});", number(epsilon));
            (coefficients, code)
        }
        UpdateRule::Rmsprop { rho, momentum, epsilon, centered } => {
            let (rho, epsilon) = (number(rho), number(epsilon));
            let by = |state: usize| format!("s{state}[i]");
            let mean = by(if momentum == 0.0 { 2 } else { 3 });
            let centre = format!(
                "float a = {rho} * {mean} + (1.0f - {rho}) * g; {mean} = a; under = v - a * a + {epsilon};"
            );
            let moved = format!("ahead = {} * {} + ahead; {} = ahead;", number(momentum), by(2), by(2));
            let code = format!(
                "float v = {rho} * s1[i] + (1.0f - {rho}) * (g * g); s1[i] = v; float under = v + {epsilon}; {} \
                 float ahead = rate * g / sqrtf(under); {} w -= ahead;",
                if centered { centre } else { String::new() },
                if momentum == 0.0 { String::new() } else { moved },
            );
            (String::new(), code)
        }
        UpdateRule::Adagrad { epsilon, .. } => {
            let code = format!(
                "float sum = s1[i] + g * g; s1[i] = sum; w -= rate * g / sqrtf(sum + {});",
                number(epsilon)
            );
            (String::new(), code)
        }
        UpdateRule::Adadelta { rho, epsilon } => {
            let (rho, epsilon) = (number(rho), number(epsilon));
            let code = format!(
                "float square = {rho} * s1[i] + (1.0f - {rho}) * (g * g); s1[i] = square; \
                 float change = sqrtf(s2[i] + {epsilon}) * g / sqrtf(square + {epsilon}); \
                 s2[i] = {rho} * s2[i] + (1.0f - {rho}) * (change * change); w -= rate * change;"
            );
            (String::new(), code)
        }
        UpdateRule::Adamax { beta_1, beta_2, epsilon } => {
            let coefficients =
                format!("k[0] = (float)((double)rate / {}); k[1] = {};", rest(beta_1), number(1.0 - beta_1));
            let code = format!(
                "{MEAN} float kept = {} * s2[i]; float most = fabsf(g) > kept ? fabsf(g) : kept; s2[i] = most; \
                 w -= k[0] * m / (most + {});",
                number(beta_2),
                number(epsilon)
            );
            (coefficients, code)
        }
        UpdateRule::Nadam { beta_1, beta_2, epsilon } => {
            let beta = double(beta_1);
            // The product vanishes long before the updates become many.
            let coefficients = format!(
                "double now = {beta} * (1.0 - 0.5 * pow(0.96, step)), next = {beta} * (1.0 - 0.5 * pow(0.96, step + 1.0)); \
                 double product = 1.0; for (double at = 1.0; at <= step && 1e-40 < product; at += 1.0) \
                 product *= {beta} * (1.0 - 0.5 * pow(0.96, at)); \
                 k[0] = (float)((double)rate * next / (1.0 - product * next)); k[1] = {}; k[2] = {}; \
                 k[3] = (float)((double)rate * (1.0 - now) / (1.0 - product)); k[4] = (float)(1.0 / {});",
                number(1.0 - beta_1),
                number(1.0 - beta_2),
                rest(beta_2)
            );
            let code = format!(
                "{MEAN} {SQUARES} w -= (k[0] * m + k[3] * g) / (sqrtf(v * k[4]) + {});",
                number(epsilon)
            );
            (coefficients, code)
        }
        UpdateRule::Ftrl { learning_rate_power, l1, l2, l2_shrinkage, beta, .. } => {
            let raised = |of: &str| {
                if learning_rate_power == -0.5 {
                    format!("sqrtf({of})")
                } else {
                    format!("powf({of}, {})", number(-learning_rate_power))
                }
            };
            let code = format!(
                "float more = s1[i] + g * g; float now = {}, then = {}; \
                 float line = s2[i] + g + 2.0f * {} * w - (now - then) / rate * w; s2[i] = line; \
                 float under = now / rate + 2.0f * ({} + {} / (2.0f * rate)); \
                 w = (f_clip(line, {}, {}) - line) / under; s1[i] = more;",
                raised("more"),
                raised("s1[i]"),
                number(l2_shrinkage),
                number(l2),
                number(beta),
                number(-l1),
                number(l1),
            );
            (String::new(), code)
        }
        UpdateRule::Lion { beta_1, beta_2 } => {
            let code = format!(
                "float m = s1[i]; float along = m * {} + g * {}; \
                 w -= rate * (float)((along > 0.0f) - (along < 0.0f)); s1[i] = m * {} + g * {};",
                number(beta_1),
                number(1.0 - beta_1),
                number(beta_2),
                number(1.0 - beta_2)
            );
            (String::new(), code)
        }
        UpdateRule::Lamb { beta_1, beta_2, epsilon } => return Method::Lamb([beta_1, beta_2, epsilon]),
        UpdateRule::Adafactor { .. } => return Method::Adafactor,
    };
    Method::Elementwise(coefficients, code)
}
