//! Products of two tensors, by matrices or by the letters of an einsum.

use memfit_ir::{MatMul, Op, TensorId};
use serde_json::Value;

use super::Call;
use crate::error::FormatError;

/// The functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Matmul,
    Einsum,
}

pub(super) const FUNCTIONS: &[(&str, Function)] =
    &[("Matmul", Function::Matmul), ("Einsum", Function::Einsum)];

const PLAIN: Op = Op::MatMul(MatMul { transpose_a: false, transpose_b: false });

impl Call<'_, '_> {
    pub(super) fn products(&mut self, function: Function) -> Result<TensorId, FormatError> {
        match function {
            Function::Matmul => match *self.operands {
                [a, b] if self.given.len() == 2 => self.site.push(PLAIN, &[a, b]),
                _ => Err(self.refuse("call", &Value::from(self.given.len()), "two tensors")),
            },
            Function::Einsum => self.einsum(),
        }
    }

    /// Two tensors: the letters of both and of the result count products, the letters of both alone are summed over.
    fn einsum(&mut self) -> Result<TensorId, FormatError> {
        let equation = self.argument("subscripts").clone();
        let supported =
            "two tensors as in \"bij,bjk->bik\", each letter in two of the three, the batch in front";
        let text = equation.as_str().unwrap_or_default().replace(' ', "");
        let sides = text.split_once("->").and_then(|(read, out)| Some((read.split_once(',')?, out)));
        let (Some(((a, b), out)), [first, second]) = (sides, self.operands) else {
            return Err(self.refuse("subscripts", &equation, supported));
        };
        let (a, b, out): (Vec<char>, Vec<char>, Vec<char>) =
            (a.chars().collect(), b.chars().collect(), out.chars().collect());
        if !suit(&a, &b, &out)
            || self.dims(*first).len() + 1 != a.len()
            || self.dims(*second).len() + 1 != b.len()
        {
            return Err(self.refuse("subscripts", &equation, supported));
        }
        // The batch is no axis of the graph.
        let (a, b, out) = (&a[1..], &b[1..], &out[1..]);
        let pick = |from: &[char], wanted: &dyn Fn(&char) -> bool| {
            from.iter().copied().filter(|letter| wanted(letter)).collect::<Vec<char>>()
        };
        let shared = pick(out, &|letter| a.contains(letter) && b.contains(letter));
        let summed = pick(a, &|letter| !out.contains(letter));
        let left = pick(out, &|letter| a.contains(letter) && !b.contains(letter));
        let right = pick(out, &|letter| b.contains(letter) && !a.contains(letter));
        let x = self.as_matrices(*first, a, &[&shared, &left, &summed])?;
        let y = self.as_matrices(*second, b, &[&shared, &summed, &right])?;
        let product = self.site.push(PLAIN, &[x, y])?;
        let size = |letter: &char| {
            let found = a.iter().position(|known| known == letter).map(|axis| self.site.dims(*first)[axis]);
            let other = b.iter().position(|known| known == letter).map(|axis| self.site.dims(*second)[axis]);
            found.or(other).unwrap_or(1)
        };
        let made: Vec<char> = shared.iter().chain(&left).chain(&right).copied().collect();
        let dims: Vec<usize> = made.iter().map(size).collect();
        let apart = self.reshape(product, dims)?;
        let order: Option<Vec<usize>> =
            out.iter().map(|letter| made.iter().position(|known| known == letter)).collect();
        let order = order.ok_or_else(|| self.refuse("subscripts", &equation, supported))?;
        self.transpose(apart, order)
    }

    /// A tensor with its axes in three groups, each joined to one axis.
    fn as_matrices(
        &mut self,
        x: TensorId,
        letters: &[char],
        groups: &[&[char]; 3],
    ) -> Result<TensorId, FormatError> {
        let place = |letter: &char| letters.iter().position(|known| known == letter).unwrap_or(0);
        let dims = self.dims(x);
        let order = groups.iter().flat_map(|group| group.iter().map(place)).collect();
        let sizes =
            groups.iter().map(|group| group.iter().map(|letter| dims[place(letter)]).product()).collect();
        let ordered = self.transpose(x, order)?;
        self.reshape(ordered, sizes)
    }
}

/// Whether the batch stands in front, and every other letter once in exactly two of the three, or in all.
fn suit(a: &[char], b: &[char], out: &[char]) -> bool {
    let lists = [a, b, out];
    let batch = a.first();
    let in_front = batch.is_some() && lists.iter().all(|list| list.first() == batch);
    let once = |list: &[char]| {
        list.iter().all(|letter| {
            letter.is_ascii_alphabetic() && list.iter().filter(|other| *other == letter).count() == 1
        })
    };
    let known = |letter: &char| lists.iter().filter(|list| list.contains(letter)).count() >= 2;
    in_front && lists.iter().all(|list| once(list) && list.iter().all(known))
}
