//! Launches that read the same values as one: an elementwise chain, the sums over the columns of its result, and a function of what it
//! reads that is computed again. Each gives the bits that it gives alone.

use std::fmt::Write;

use memfit_ir::Operand::{Dy, X, Y};
use memfit_ir::{Chain, Op};

use super::columns::bias_grad_of;
use super::elementwise::statements;
use crate::call::{Call, Operand};
use crate::work::{Address, Argument, Lowered, Work};

/// The chain of a node, where sums over the columns of its result may join it.
pub(crate) fn chain<'a>(call: &Call<'a>) -> Option<&'a Chain> {
    let Op::Elementwise(chain) = &call.node.op else { return None };
    let is_value = |operand: Operand<'_>| operand.shape().batched && !operand.dims().is_empty();
    is_value(call.output(Y)).then_some(chain)
}

/// What the kernel of the sums has defined, so that it makes what it sums up.
pub(crate) fn made(call: &Call<'_>, chain: &Chain) -> String {
    let join = |part: &dyn Fn(usize, &'static str) -> String| -> String {
        (0..chain.inputs).map(|index| part(index, call.input((X, index)).c_type())).collect()
    };
    let (statements, result) = statements(chain);
    let mut defines = String::from("#define MADE\n");
    let parameters = join(&|index, c_type| format!("const {c_type}* x{index}, "));
    for (name, text) in [
        ("MORE_PARAMETERS", format!("{parameters}X* made, X* again,")),
        ("LOADED", join(&|index, c_type| format!("Pack<{c_type}, WIDTH> p{index}; "))),
        ("LOAD_PACKS", join(&|index, _| format!("loaded.p{index} = pack_at<WIDTH>(x{index}, i); "))),
        ("TAKE_PACKED", join(&|index, _| format!("float v{index} = widen(row.p{index}.at[j]); "))),
        ("CHAIN", statements),
        ("RESULT", result),
    ] {
        writeln!(defines, "#define {name} {text}").expect("a text takes what is written to it");
    }
    defines
}

/// Sums over columns whose terms a chain recomputes: `inputs` operands of the chain come after the node's
/// own, and after them the recomputed values.
pub(crate) fn sums(call: &Call<'_>, made: &str, inputs: usize) -> Lowered {
    let own = call.node.inputs.len() + call.node.outputs.len() + call.node.updates.len();
    let mut more: Vec<Argument> =
        (own..own + inputs).map(|index| Argument::At(Address::operand(index))).collect();
    more.extend([call.input(Dy).pointer(), Argument::Null]);
    bias_grad_of(call, made, &more)
}

/// Lets the first kernel write a function of input `read` of its chain too, to operand `to`.
pub(crate) fn compute_again(lowered: &mut Lowered, chain: &Chain, read: usize, to: usize) {
    let Some(Work::Kernel(kernel)) = lowered.work.first_mut() else { return };
    let (statements, result) = statements(chain);
    let code = format!("float v0 = widen(row.p{read}.at[j]); {statements} narrow({result}, values.at[j]);");
    kernel.source.defines += &format!("#define AGAIN {code}\n");
    // The last of the parameters that the chain brought stands before parts, rows and packs.
    let place = kernel.arguments.len() - 4;
    kernel.arguments[place] = Argument::At(Address::operand(to));
}
